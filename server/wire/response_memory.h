// Memory of responses: 64-byte aligned, part of the budget of bytes in flight
// from its allocation until gRPC has sent it. Large blocks are kept for the
// next response, as far as nobody claims their room.

#pragma once

#include <cstddef>
#include <memory>

#include "absl/status/statusor.h"
#include "grpcpp/support/slice.h"
#include "server/wire/admission.h"
#include "server/wire/block_pool.h"

namespace posenc::server {

class ResponseMemory {
 public:
  explicit ResponseMemory(std::shared_ptr<Admission> admission);

  // At least one byte, not initialised. The caller has claimed as many; the
  // slice gives that back when it is freed. RESOURCE_EXHAUSTED, kOverloaded,
  // where the machine has no room: the claim remains.
  absl::StatusOr<grpc::Slice> Allocate(std::size_t bytes);

  // Gives what is kept back to the kernel.
  void ReturnKept() { pool_->KeepAtMost(0); }

 private:
  struct Allocation;

  const std::shared_ptr<Admission> admission_;
  const std::shared_ptr<BlockPool> pool_;
};

}  // namespace posenc::server
