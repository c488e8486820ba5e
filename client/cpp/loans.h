// Memory of the caller's that gRPC sends from.
//
// gRPC may hold on to a slice after its call has ended: in the buffer of a
// write that the peer does not take, or for a retry. So a call must not return
// before everything that it lent has come back.

#pragma once

#include <cstdint>
#include <memory>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "grpcpp/support/slice.h"

namespace posenc {

class Loans {
 public:
  Loans();

  // A slice over `bytes`, which must not move until it has come back. `owner`
  // lives at least as long.
  grpc::Slice Lend(absl::Span<const char> bytes,
                   std::shared_ptr<const void> owner = nullptr);

  // False where some are still out after `timeout`.
  bool AwaitReturn(absl::Duration timeout) const;

  std::int64_t out() const;

 private:
  struct State;
  struct Loan;
  static void Return(void* loan);

  const std::shared_ptr<State> state_;
};

}  // namespace posenc
