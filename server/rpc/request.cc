#include "server/rpc/request.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "server/memory/heap.h"

namespace posenc::server {
namespace {

// So many bytes beside tensors are parsed without a thought for the memory that
// they are copied into, and so is this part of a message.
constexpr std::size_t kFewBytes = 1 << 20;
constexpr std::size_t kFewPart = 2;

// The heap keeps what is freed. Returning so much takes less than parsing it.
constexpr std::size_t kManyBytes = 32 << 20;

}  // namespace

absl::StatusOr<std::string> TakeSmall(const KnownFields& known,
                                      absl::Span<const int> tensor_fields,
                                      RequestMessage* message,
                                      wire::SplitMessage* split,
                                      bool* borrows) {
  const std::size_t all = message->bytes();
  const auto pieces = message->pieces();
  *borrows = !tensor_fields.empty() &&
             wire::SplitTensors(pieces, tensor_fields, split,
                                std::max(kFewBytes, all / kFewPart));
  const std::size_t copies = *borrows ? 2 * split->rest.size() : all;
  const absl::Status room =
      message->ClaimMore(static_cast<std::int64_t>(copies));
  if (!room.ok()) return room;
  std::string small;
  if (*borrows) {
    small = std::move(split->rest);
  } else {
    *split = wire::SplitMessage();
    small.reserve(all);
    for (const auto piece : pieces) small.append(piece.data(), piece.size());
    message->Clear();
    if (all >= kManyBytes) ReturnFreedMemory();
  }
  std::size_t grown = 0;
  absl::Status few = known.CheckElements(small, &grown);
  if (few.ok()) {
    few = message->ClaimMore(static_cast<std::int64_t>(grown));
  }
  if (!few.ok()) return few;
  return small;
}

}  // namespace posenc::server
