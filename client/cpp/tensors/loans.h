// Lends the caller's memory to gRPC, which sends from it without a copy.
//
// A call that lends memory must not return before gRPC has released all of it,
// because the caller may free or overwrite the memory as soon as the call
// returns. gRPC may keep a slice after a call has ended: in the write buffer of
// a connection whose peer accepts no bytes, or for a retry.
//
//   the call's thread        gRPC's slices and threads
//   Lend(q)           -->    slice with a Loan
//   ... the call ends        still being written
//   AwaitReturn()            written or dropped:
//       wakes up      <--    Return(loan)
//
// A slice owns its Loan, and Loan and Loans share the State, so that the last
// slice may be destroyed after the Loans.

#pragma once

#include <memory>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "grpcpp/support/slice.h"

namespace posenc {

// Safe for any number of threads, because gRPC's threads return loans.
class Loans {
 public:
  Loans();

  // Makes a slice over `bytes`, which must not change until gRPC has returned
  // the slice.
  grpc::Slice Lend(absl::Span<const char> bytes);

  // Waits until gRPC has returned all slices. Returns false if gRPC still has a
  // slice after `timeout`, which may be infinite.
  bool AwaitReturn(absl::Duration timeout) const;

 private:
  struct State;
  struct Loan;
  // Called by gRPC, in any thread, when the last reference to a slice is
  // dropped.
  static void Return(void* loan);

  const std::shared_ptr<State> state_;
};

}  // namespace posenc
