// The coroutines of calls.

#pragma once

#include <coroutine>
#include <exception>
#include <utility>

#include "absl/status/status.h"
#include "server/base/errors.h"

namespace posenc::server {

// A coroutine that returns a status to the coroutine that awaits it. A Task
// starts immediately. It may be awaited only once, and only on the thread of
// its call's loop. If a Task is destroyed before it has ended, the process
// ends, because gRPC or another thread would resume it later. If an allocation
// inside a Task fails, its status is OutOfMemory(). If a Task's frame cannot be
// allocated, the caller's status is OutOfMemory().
class [[nodiscard]] Task {
 public:
  // The language requires these names.
  struct promise_type {
    struct Final {
      bool await_ready() const noexcept { return false; }
      std::coroutine_handle<> await_suspend(
          std::coroutine_handle<promise_type> ended) noexcept {
        const std::coroutine_handle<> waiter = ended.promise().waiter;
        return waiter ? waiter : std::noop_coroutine();
      }
      void await_resume() const noexcept {}
    };

    Task get_return_object() {
      return Task(std::coroutine_handle<promise_type>::from_promise(*this));
    }
    std::suspend_never initial_suspend() noexcept { return {}; }
    Final final_suspend() noexcept { return {}; }
    void return_value(absl::Status value) { result = std::move(value); }
    void unhandled_exception() {
      result = OrOutOfMemory([]() -> absl::Status { throw; });
    }

    absl::Status result;
    std::coroutine_handle<> waiter;  // null: not awaited yet
  };

  Task(Task&& other) noexcept : task_(std::exchange(other.task_, nullptr)) {}
  Task& operator=(Task&&) = delete;
  ~Task() {
    if (!task_) return;
    if (!task_.done()) std::terminate();
    task_.destroy();
  }

  bool await_ready() const { return task_.done(); }
  void await_suspend(std::coroutine_handle<> waiter) {
    task_.promise().waiter = waiter;
  }
  absl::Status await_resume() { return std::move(task_.promise().result); }

 private:
  explicit Task(std::coroutine_handle<promise_type> task) : task_(task) {}

  std::coroutine_handle<promise_type> task_;
};

// A coroutine that no other coroutine awaits. It destroys itself when it ends.
// If an allocation fails in a Task that this coroutine awaits, the failure
// becomes the Task's status. If an allocation fails in this coroutine itself,
// the process ends, because gRPC would otherwise use the memory of a call whose
// coroutine is gone. Ending the process is acceptable, because clients call
// again, and the server has no state that a restart would lose.
struct Detached {
  struct promise_type {
    Detached get_return_object() { return {}; }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_never final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { std::terminate(); }
  };
};

}  // namespace posenc::server
