#include "client/cpp/tensors/loans.h"

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <utility>

namespace posenc {

struct Loans::State {
  std::mutex mutex;
  std::condition_variable none_out;
  std::int64_t out = 0;
};

struct Loans::Loan {
  std::shared_ptr<State> state;
};

Loans::Loans() : state_(std::make_shared<State>()) {}

grpc::Slice Loans::Lend(absl::Span<const char> bytes) {
  {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    ++state_->out;
  }
  // grpc::Slice needs a mutable pointer, but gRPC only reads the bytes.
  return grpc::Slice(const_cast<char*>(bytes.data()), bytes.size(),
                     &Loans::Return, new Loan{state_});
}

void Loans::Return(void* loan) {
  // This reference keeps the mutex alive. As soon as `out` is 0, a waiting call
  // may return and destroy its Loans while this thread still has the lock.
  std::shared_ptr<State> state;
  {
    const std::unique_ptr<Loan> returned(static_cast<Loan*>(loan));
    state = std::move(returned->state);
  }
  const std::lock_guard<std::mutex> lock(state->mutex);
  if (--state->out == 0) state->none_out.notify_all();
}

bool Loans::AwaitReturn(absl::Duration timeout) const {
  std::unique_lock<std::mutex> lock(state_->mutex);
  const auto returned = [this] { return state_->out == 0; };
  if (timeout == absl::InfiniteDuration()) {
    state_->none_out.wait(lock, returned);
    return true;
  }
  return state_->none_out.wait_for(lock, absl::ToChronoNanoseconds(timeout),
                                   returned);
}

}  // namespace posenc
