// The waits of a call's coroutine (`co_await`), except for operations of gRPC.

#pragma once

#include <coroutine>
#include <functional>
#include <optional>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "core/runtime/pool.h"
#include "server/base/steady_time.h"
#include "server/call/loop.h"
#include "server/call/stop.h"
#include "server/scheduling/waiter.h"

namespace posenc::server {

// Waits for a place, for memory or for news. One object serves many waits, one
// after the other. `co_await` returns OK, the reason why the wait failed, or
// the reason to stop. If the place or memory was granted before the stop, the
// status is OK, and the call must give it back.
//
//   wait.For(places->Enter(request, &ticket, &wait),
//            [&] { return places->StopWaiting(&ticket); });
//   const absl::Status status = co_await wait;
class Wait final : public Waiter, private Stop::Pending {
 public:
  Wait(Loop* loop, Stop* stop) : loop_(loop), stop_(stop) {}

  // `result` is nullopt if the call waits. In this case, another thread may
  // already have called Resume(). `leave` stops the wait; it returns false if
  // Resume() was called, or is being called.
  void For(std::optional<absl::Status> result,
           std::function<bool()> leave = nullptr) {
    waits_ = !result.has_value();
    if (result) result_ = *std::move(result);
    leave_ = std::move(leave);
    last_ = absl::ZeroDuration();
  }

  void Resume(const absl::Status& result) override {
    result_ = result;
    loop_->Post(this);
  }

  bool await_ready() const { return !waits_; }
  void await_suspend(std::coroutine_handle<> coroutine) {
    coroutine_ = coroutine;
    since_ = SteadyNow();
    stop_->Add(this);
    if (stop_->requested()) GiveUp();
  }
  absl::Status await_resume() {
    if (!std::exchange(waits_, false)) return result_;
    stop_->Remove(this);
    last_ = SteadyNow() - since_;
    all_ += last_;
    return result_;
  }

  // last() returns the time of the last wait, and all() the time of all waits.
  absl::Duration last() const { return last_; }
  absl::Duration all() const { return all_; }

 private:
  void GiveUp() override {
    if (leave_()) Resume(stop_->why());
  }
  void Happen(bool /*ok*/) override { coroutine_.resume(); }

  Loop* const loop_;
  Stop* const stop_;
  std::function<bool()> leave_;
  bool waits_ = false;
  absl::Status result_;
  absl::Time since_;
  absl::Duration last_, all_;
  std::coroutine_handle<> coroutine_;
};

// Runs work on the pool, and waits until the work is done.
class OnPool final : private Loop::Event {
 public:
  OnPool(core::ComputePool* pool, Loop* loop, absl::FunctionRef<void()> work)
      : pool_(pool), loop_(loop), work_(work) {}

  bool await_ready() const { return false; }
  void await_suspend(std::coroutine_handle<> coroutine) {
    coroutine_ = coroutine;
    pool_->Submit([this] {
      work_();
      loop_->Post(this);
    });
  }
  void await_resume() const {}

 private:
  void Happen(bool /*ok*/) override { coroutine_.resume(); }

  core::ComputePool* const pool_;
  Loop* const loop_;
  const absl::FunctionRef<void()> work_;
  std::coroutine_handle<> coroutine_;
};

}  // namespace posenc::server
