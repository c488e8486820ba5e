#include "server/wire/response_memory.h"

#include <cstdint>
#include <cstdlib>
#include <utility>

#include "grpc/slice.h"
#include "server/calls/call.h"
#include "server/memory.h"

namespace posenc::server {
namespace {

// A cache line, and the widest vector.
constexpr std::size_t kAlignment = 64;

// From here on a block of its own.
constexpr std::size_t kPooledBytes = 256 << 10;

}  // namespace

// Slices may outlive the server, in clients of the same process.
struct ResponseMemory::Allocation {
  BlockPool::Block block;
  std::int64_t claimed;
  std::shared_ptr<Admission> admission;
  std::shared_ptr<BlockPool> pool;  // null: the allocator's

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

ResponseMemory::ResponseMemory(std::shared_ptr<Admission> admission)
    : admission_(std::move(admission)), pool_(std::make_shared<BlockPool>()) {
  admission_->OnClaim([pool = pool_](std::int64_t left) {
    pool->KeepAtMost(static_cast<std::size_t>(left));
  });
}

absl::StatusOr<grpc::Slice> ResponseMemory::Allocate(std::size_t bytes) {
  BlockPool::Block block;
  const bool pooled = bytes >= kPooledBytes;
  if (pooled) {
    block = pool_->Allocate(bytes);
    pool_->KeepAtMost(
        static_cast<std::size_t>(admission_->budget() - admission_->claimed()));
  } else {
    const std::size_t rounded =
        (bytes + kAlignment - 1) / kAlignment * kAlignment;
    block = {std::aligned_alloc(kAlignment, rounded), rounded};
  }
  if (block.data == nullptr) return OutOfMemory();
  auto allocation = std::make_unique<Allocation>(
      Allocation{block, static_cast<std::int64_t>(bytes), admission_,
                 pooled ? pool_ : nullptr});
  // What requests left free in the heap does not serve blocks.
  if (block.fresh &&
      static_cast<std::int64_t>(pool_->mapped() + FreedMemory()) >
          admission_->budget()) {
    ReturnFreedMemory();
  }
  return grpc::Slice(
      grpc_slice_new_with_user_data(block.data, bytes, &Allocation::Free,
                                    allocation.release()),
      grpc::Slice::STEAL_REF);
}

}  // namespace posenc::server
