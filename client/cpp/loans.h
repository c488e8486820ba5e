// Memory of the caller's that gRPC sends from.
//
// A call that lends memory must not return before gRPC has let go of all of it:
// the caller may free it, or write to it, at once. That is not the same moment
// as the end of the call. gRPC may hold on to a slice after a call has ended:
// in the write buffer of a connection whose peer takes nothing, or for a retry.
//
//   the call's thread        gRPC's slices and threads
//   Lend(q)           -->    slice with a Loan
//   ... the call ends        still being written
//   AwaitReturn()            written or dropped:
//       wakes up      <--    Return(loan)
//
// Who owns what: a slice owns its Loan, and a Loan shares the State, so that
// the last slice may go after the Loans itself.

#pragma once

#include <memory>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "grpcpp/support/slice.h"

namespace posenc {

// Safe for any number of threads: gRPC returns loans on its own.
class Loans {
 public:
  Loans();

  // Makes a slice over `bytes`, which must stay as they are until it has come
  // back. `owner`, if set, is dropped only then.
  grpc::Slice Lend(absl::Span<const char> bytes,
                   std::shared_ptr<const void> owner = nullptr);

  // Waits until everything has come back. False if some is still out after
  // `timeout`, which may be infinite.
  bool AwaitReturn(absl::Duration timeout) const;

 private:
  struct State;
  struct Loan;
  // Called by gRPC, in any thread, when the last reference to a slice goes.
  static void Return(void* loan);

  const std::shared_ptr<State> state_;
};

}  // namespace posenc
