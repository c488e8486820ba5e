// Allocates the memory into which responses are computed and from which gRPC
// sends them.
//
// A buffer is 64-byte aligned. It counts against the budget until gRPC has sent
// it and frees its slice, perhaps after the call has ended. Large buffers come
// from a BlockPool. The pool keeps as many freed buffers for later responses as
// fit into the unclaimed part of the budget.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "server/memory/block_pool.h"
#include "server/memory/writable_slice.h"
#include "server/scheduling/admission.h"

namespace posenc::server {

// Thread-safe. Slices may outlive this object.
class ResponseBuffers {
 public:
  explicit ResponseBuffers(std::shared_ptr<Admission> admission);

  // Allocates `bytes` >= 1 uninitialised bytes. The caller must have claimed
  // the bytes. The slice releases this claim when it is freed. Returns
  // RESOURCE_EXHAUSTED, kOverloaded, if the machine has no memory left. The
  // caller then keeps its claim.
  absl::StatusOr<WritableSlice> Allocate(std::size_t bytes);

  // Returns an object whose destruction releases claimed bytes. The memory
  // itself has another owner. If the object cannot be allocated, the bytes are
  // released, and std::bad_alloc is thrown.
  std::shared_ptr<void> HoldClaimed(std::int64_t bytes) const {
    return {nullptr, [admission = admission_, bytes](void* /*none*/) {
              admission->Release(bytes);
            }};
  }

  // Returns kept blocks to the kernel until at most `bytes` are kept.
  void KeepAtMost(std::size_t bytes) { pool_->KeepAtMost(bytes); }

  // used() returns the size of the blocks in use, and kept() that of kept
  // blocks.
  std::size_t used() const { return pool_->used(); }
  std::size_t kept() const { return pool_->kept(); }

 private:
  struct Allocation;

  const std::shared_ptr<Admission> admission_;
  const std::shared_ptr<BlockPool> pool_;
};

}  // namespace posenc::server
