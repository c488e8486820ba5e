// Waits for a call's coroutine (`co_await`), beside gRPC's operations.

#pragma once

#include <coroutine>
#include <functional>
#include <optional>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "core/runtime/pool.h"
#include "server/budget/waiter.h"
#include "server/rpc/loop.h"
#include "server/rpc/stop.h"

namespace posenc::server {

// Waits for a place, for memory, or for news. Returns OK, the reason why the
// wait failed, or the reason to stop. If the grant came before the stop, the
// status is OK, and the call must give back the granted place or memory.
//
//   Wait wait(loop, stop, [&] { return places->StopWaiting(&ticket); });
//   wait.For(places->Enter(request, &ticket, &wait));
//   const absl::Status status = co_await wait;
class Wait final : public Waiter, private Stop::Wait {
 public:
  // leave: stops waiting; false if Resume() was called, or is being called.
  Wait(Loop* loop, Stop* stop, std::function<bool()> leave)
      : loop_(loop), stop_(stop), leave_(std::move(leave)) {}

  // result: nullopt if Resume() follows.
  void For(std::optional<absl::Status> result) {
    waits_ = !result.has_value();
    if (result) result_ = *std::move(result);
  }

  void Resume(const absl::Status& result) override {
    result_ = result;
    loop_->Post(this);
  }

  bool await_ready() const { return !waits_; }
  void await_suspend(std::coroutine_handle<> coroutine) {
    coroutine_ = coroutine;
    stop_->Add(this);
    if (stop_->requested()) GiveUp();
  }
  absl::Status await_resume() {
    if (waits_) stop_->Remove(this);
    return result_;
  }

 private:
  void GiveUp() override {
    if (leave_()) Resume(stop_->why());
  }
  void Happen(bool /*ok*/) override { coroutine_.resume(); }

  Loop* const loop_;
  Stop* const stop_;
  const std::function<bool()> leave_;
  bool waits_ = false;
  absl::Status result_;
  std::coroutine_handle<> coroutine_;
};

// Runs work on the pool, and waits until it is done.
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
