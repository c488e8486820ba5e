#include "server/call/request.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/base/error.h"
#include "server/memory/heap.h"

namespace posenc::server {
namespace {

// Tensors are borrowed if the other bytes of the message are at most kFewBytes,
// or at most 1/kFewPart of the message.
constexpr std::size_t kFewBytes = 1 << 20;
constexpr std::size_t kFewPart = 2;

// The memory of a freed message stays in the heap. If the message has at least
// this size, its memory is returned to the kernel. For such a message, parsing
// takes much more time than returning the memory.
constexpr std::size_t kManyBytes = 32 << 20;

}  // namespace

absl::Status NotAMessage() {
  return core::FieldInvalid(
      "", "the message is not a valid protobuf message of this call");
}

absl::Status ParseSmall(const KnownFields& known, const std::string& small,
                        RequestMessage* message,
                        google::protobuf::Message* parsed, bool* may_share) {
  const absl::StatusOr<KnownFields::Seen> seen = known.Walk(small);
  if (!seen.ok()) return seen.status();
  absl::Status status =
      message->ClaimMore(static_cast<std::int64_t>(seen->grown));
  if (!status.ok()) return status;
  if (!parsed->ParseFromString(small)) return NotAMessage();
  if (may_share != nullptr) *may_share = seen->shares || !seen->known;
  if (!seen->known) status = known.Check(*parsed);
  if (status.ok()) message->GiveBack(static_cast<std::int64_t>(small.size()));
  return status;
}

absl::Status ParseInto(const KnownFields& known,
                       absl::Span<const int> tensor_fields,
                       google::protobuf::Message* request,
                       ParsedMessage* parsed) {
  RequestMessage* const message = &parsed->message;
  const std::size_t all = message->bytes();
  parsed->borrows =
      !tensor_fields.empty() &&
      wire::SplitTensors(message->pieces(), tensor_fields, &parsed->split,
                         std::max(kFewBytes, all / kFewPart));
  std::string small;
  if (parsed->borrows) small = std::move(parsed->split.rest);
  const absl::Status room = message->ClaimMore(
      static_cast<std::int64_t>(parsed->borrows ? 2 * small.size() : all));
  if (!room.ok()) return room;
  if (!parsed->borrows) {
    parsed->split = wire::SplitMessage();
    small = message->Joined();
    message->Clear();
    if (all >= kManyBytes) ReturnFreedMemory();
  }
  return ParseSmall(known, small, message, request, &parsed->may_share);
}

}  // namespace posenc::server
