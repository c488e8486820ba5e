// Passes values, one at a time, from one coroutine of a call to another. Room()
// waits until the handover is empty, and Value() until it has a value.
//
//   auto room = h.Room();                     auto value = h.Value();
//   if (co_await room) h.Put(value);          if (co_await value) h.Take();

#pragma once

#include <coroutine>
#include <optional>
#include <utility>

#include "server/call/loop.h"
#include "server/call/stop.h"

namespace posenc::server {

// Must be used on the call's thread. At most one coroutine may wait on each
// side.
template <typename T>
class Handover {
 public:
  // Waits for room or a value. The result is false if the handover has ended.
  class Side final : private Stop::Pending {
   public:
    Side(Handover* handover, bool wants_value)
        : handover_(handover), wants_value_(wants_value) {}

    bool await_ready() const { return IsOver(); }
    void await_suspend(std::coroutine_handle<> coroutine) {
      coroutine_ = coroutine;
      handover_->sides_[wants_value_] = this;
      handover_->stop_->Add(this);
    }
    bool await_resume() {
      if (coroutine_) handover_->stop_->Remove(this);
      return HasWhatItWants() && !handover_->stop_->requested();
    }

   private:
    friend class Handover;

    bool HasWhatItWants() const {
      return handover_->value_.has_value() == wants_value_ &&
             (wants_value_ || !handover_->closed_);
    }
    bool IsOver() const {
      return HasWhatItWants() || handover_->closed_ ||
             handover_->stop_->requested();
    }
    // Posts an event, so that the loop resumes the coroutine.
    void GiveUp() override {
      if (std::exchange(handover_->sides_[wants_value_], nullptr) == nullptr) {
        return;
      }
      handover_->loop_->Post(this);
    }
    void Happen(bool /*ok*/) override { coroutine_.resume(); }

    Handover* const handover_;
    const bool wants_value_;
    std::coroutine_handle<> coroutine_;  // null if it has not waited
  };

  Handover(Loop* loop, Stop* stop) : loop_(loop), stop_(stop) {}

  Side Room() { return Side(this, false); }
  Side Value() { return Side(this, true); }
  // Requires room.
  void Put(T value) {
    value_.emplace(std::move(value));
    Wake();
  }
  // Requires a value.
  T Take() {
    T value = *std::move(value_);
    value_.reset();
    Wake();
    return value;
  }
  // Ends the handover. A value in the handover can still be taken.
  void Close() {
    closed_ = true;
    Wake();
  }

 private:
  void Wake() {
    for (Side* const side : {sides_[0], sides_[1]}) {
      if (side != nullptr && side->IsOver()) side->GiveUp();
    }
  }

  Loop* const loop_;
  Stop* const stop_;
  std::optional<T> value_;
  bool closed_ = false;
  Side* sides_[2] = {};  // waiting sides: for room, for a value
};

}  // namespace posenc::server
