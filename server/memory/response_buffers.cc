#include "server/memory/response_buffers.h"

#include <algorithm>
#include <cstdlib>

#include "grpc/slice.h"
#include "server/base/errors.h"
#include "server/memory/heap.h"

namespace posenc::server {
namespace {

// Size of a cache line and of the widest vector register, in bytes.
constexpr std::size_t kAlignment = 64;

// Buffers of at least this size come from the pool. The heap handles smaller
// buffers well.
constexpr std::size_t kPooledBytes = 256 << 10;

}  // namespace

// The resources that a slice releases when it is freed. The slice owns this
// object. The object is a co-owner of the pool and the budget, because a client
// in the same process may keep slices after the server's end.
struct ResponseBuffers::Allocation {
  BlockPool::Block block;
  std::int64_t claimed = 0;
  std::shared_ptr<Admission> admission;
  std::shared_ptr<BlockPool> pool;  // null: the block is from the heap

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
  // Kept blocks take memory, too, so they must fit into the unclaimed budget.
  admission_->OnClaim([pool = pool_](std::int64_t left) {
    pool->KeepAtMost(static_cast<std::size_t>(left));
  });
}

absl::StatusOr<WritableSlice> ResponseBuffers::Allocate(std::size_t bytes) {
  // Makes `allocation` before the buffer, so that no buffer leaks if there is
  // no memory for `allocation`.
  auto allocation = std::make_unique<Allocation>();
  BlockPool::Block& block = allocation->block;
  const bool pooled = bytes >= kPooledBytes;
  if (pooled) {
    // Admission::EnterMore() claims bytes without dropping kept blocks, because
    // Allocate() may reuse one of these blocks.
    block = pool_->Allocate(bytes);
    pool_->KeepAtMost(static_cast<std::size_t>(std::max<std::int64_t>(
        admission_->budget() - admission_->claimed(), 0)));
  } else {
    // Unlike aligned_alloc(), posix_memalign() takes any size, so the address
    // sanitizer knows the end of the buffer.
    block.bytes = bytes;
    if (posix_memalign(&block.data, kAlignment, bytes) != 0) block = {};
  }
  if (block.data == nullptr) return OutOfMemory();
  allocation->claimed = static_cast<std::int64_t>(bytes);
  allocation->admission = admission_;
  if (pooled) allocation->pool = pool_;
  // A new mapping cannot use free memory of the heap. If the pool and the
  // heap's free memory together exceed the budget, the heap's free memory is
  // returned to the kernel.
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
