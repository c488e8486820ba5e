#include "server/wire/response_memory.h"

#include <cstdint>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "core/error.h"
#include "grpc/slice.h"

namespace posenc::server {
namespace {

// A cache line, and the widest vector.
constexpr std::size_t kAlignment = 64;

absl::Status NoRoom(std::size_t bytes) {
  return core::MakeError(
      absl::StatusCode::kResourceExhausted, core::ErrorReason::kOverloaded, "",
      absl::StrCat("no room for a response of ", bytes,
                   " bytes beside the calls in progress; retry later"),
      {{"resource", "memory"}});
}

}  // namespace

struct ResponseMemory::Block {
  void* data;
  std::int64_t bytes;
  // Slices may outlive the server, in clients of the same process.
  std::shared_ptr<Admission> admission;

  static void Free(void* block_pointer) {
    const std::unique_ptr<Block> block(static_cast<Block*>(block_pointer));
    std::free(block->data);
    block->admission->Release(block->bytes);
  }
};

absl::StatusOr<grpc::Slice> ResponseMemory::Allocate(std::size_t bytes) {
  const auto claim = static_cast<std::int64_t>(bytes);
  if (!admission_->TryClaim(claim)) return NoRoom(bytes);
  const std::size_t rounded =
      (bytes + kAlignment - 1) / kAlignment * kAlignment;
  void* const data = std::aligned_alloc(kAlignment, rounded);
  if (data == nullptr) {
    admission_->Release(claim);
    return NoRoom(bytes);
  }
  return grpc::Slice(
      grpc_slice_new_with_user_data(data, bytes, &Block::Free,
                                    new Block{data, claim, admission_}),
      grpc::Slice::STEAL_REF);
}

}  // namespace posenc::server
