#include "server/memory/response_buffers.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <utility>

#include "grpc/slice.h"
#include "server/budget/errors.h"
#include "server/memory/heap.h"

namespace posenc::server {
namespace {

// A cache line, and the widest vector.
constexpr std::size_t kAlignment = 64;

// Buffers from this size on come from the pool, smaller ones from the heap,
// which has no trouble with them.
constexpr std::size_t kPooledBytes = 256 << 10;

}  // namespace

// What a slice has to give back when it is freed. The slice owns it, and it
// shares the pool and the budget: a client in the same process may hold slices
// longer than the server lives.
struct ResponseBuffers::Allocation {
  BlockPool::Block block;
  std::int64_t claimed = 0;
  std::shared_ptr<Admission> admission;
  std::shared_ptr<BlockPool> pool;  // null: the block is the heap's

  static void Free(void* pointer) {
    const std::unique_ptr<Allocation> it(static_cast<Allocation*>(pointer));
    if (it->pool != nullptr) {
      it->pool->Free(it->block);
    } else {
      std::free(it->block.data);
    }
    it->admission->Release(it->claimed);
  }
};

ResponseBuffers::ResponseBuffers(std::shared_ptr<Admission> admission)
    : admission_(std::move(admission)), pool_(std::make_shared<BlockPool>()) {
  // Kept blocks are memory too: they shrink to what calls leave of the budget.
  admission_->OnClaim([pool = pool_](std::int64_t left) {
    pool->KeepAtMost(static_cast<std::size_t>(left));
  });
}

absl::StatusOr<WritableSlice> ResponseBuffers::Allocate(std::size_t bytes) {
  // First, so that nothing is lost if there is no memory for it.
  auto allocation = std::make_unique<Allocation>();
  BlockPool::Block& block = allocation->block;
  const bool pooled = bytes >= kPooledBytes;
  if (pooled) {
    // The claim for these bytes left the kept blocks alone (see
    // Admission::EnterMore), because one of them may serve now.
    block = pool_->Allocate(bytes);
    pool_->KeepAtMost(static_cast<std::size_t>(std::max<std::int64_t>(
        admission_->budget() - admission_->claimed(), 0)));
  } else {
    // Unlike aligned_alloc(), it takes any size, and the address sanitizer sees
    // where the buffer ends.
    block.bytes = bytes;
    if (posix_memalign(&block.data, kAlignment, bytes) != 0) block = {};
  }
  if (block.data == nullptr) return OutOfMemory();
  allocation->claimed = static_cast<std::int64_t>(bytes);
  allocation->admission = admission_;
  if (pooled) allocation->pool = pool_;
  // Memory that requests left free in the heap cannot back a new mapping. If
  // the two together exceed the budget, the heap's goes back to the kernel.
  if (block.fresh &&
      static_cast<std::int64_t>(pool_->mapped() + FreedMemory()) >
          admission_->budget()) {
    ReturnFreedMemory();
  }
  void* const data = block.data;
  return WritableSlice::Own(
      grpc::Slice(grpc_slice_new_with_user_data(data, bytes, &Allocation::Free,
                                                allocation.release()),
                  grpc::Slice::STEAL_REF));
}

}  // namespace posenc::server
