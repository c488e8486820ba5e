// A place for one value between two coroutines of a call: one puts values into
// it, the other takes them out.
//
//   auto room = place.Room();                 auto value = place.Value();
//   if (co_await room) place.Put(value);      if (co_await value) place.Take();

#pragma once

#include <coroutine>
#include <optional>
#include <utility>

#include "server/rpc/loop.h"
#include "server/rpc/stop.h"

namespace posenc::server {

// For the call's thread. Each side waits for itself alone.
template <typename T>
class Handover {
 public:
  // Gives whether there is room, or a value; if not, there will be none.
  class Side final : private Stop::Wait {
   public:
    Side(Handover* place, bool wants_value)
        : place_(place), wants_value_(wants_value) {}

    bool await_ready() const { return IsOver(); }
    void await_suspend(std::coroutine_handle<> coroutine) {
      coroutine_ = coroutine;
      place_->sides_[wants_value_] = this;
      place_->stop_->Add(this);
    }
    bool await_resume() {
      if (coroutine_) place_->stop_->Remove(this);
      return HasWhatItWants() && !place_->stop_->requested();
    }

   private:
    friend class Handover;

    bool HasWhatItWants() const {
      return place_->value_.has_value() == wants_value_ &&
             (wants_value_ || !place_->closed_);
    }
    bool IsOver() const {
      return HasWhatItWants() || place_->closed_ || place_->stop_->requested();
    }
    // The loop resumes the coroutine, never the other side.
    void GiveUp() override {
      if (std::exchange(place_->sides_[wants_value_], nullptr) == nullptr) {
        return;
      }
      place_->loop_->Post(this);
    }
    void Happen(bool /*ok*/) override { coroutine_.resume(); }

    Handover* const place_;
    const bool wants_value_;
    std::coroutine_handle<> coroutine_;  // null: it has not waited
  };

  Handover(Loop* loop, Stop* stop) : loop_(loop), stop_(stop) {}

  Side Room() { return Side(this, false); }
  Side Value() { return Side(this, true); }
  // If there is room.
  void Put(T value) {
    value_.emplace(std::move(value));
    Wake();
  }
  // If there is a value.
  T Take() {
    T value = *std::move(value_);
    value_.reset();
    Wake();
    return value;
  }
  // No more is put in, or wanted. What is inside can still be taken.
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
  Side* sides_[2] = {};  // that wait: for room, for a value
};

}  // namespace posenc::server
