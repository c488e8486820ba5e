#include "server/call/request.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "server/memory/heap.h"

namespace posenc::server {
namespace {

// Tensors are borrowed if the other bytes of the message are at most kFewBytes,
// or at most 1/kFewPart of the message.
constexpr std::size_t kFewBytes = 1 << 20;
constexpr std::size_t kFewPart = 2;

// The memory of a freed message stays in the heap. If the message has at least
// this size, its memory is returned to the kernel. Parsing such a message takes
// much more time than returning its memory.
constexpr std::size_t kManyBytes = 32 << 20;

}  // namespace

absl::Status NotAMessage() {
  return core::FieldInvalid(
      "", "the message is not a valid protobuf message of this call");
}

absl::Status ParseSmall(const KnownFields& known, const std::string& small,
                        RequestMessage* message,
                        google::protobuf::Message* parsed, bool* may_share) {
  ASSIGN_OR_RETURN(const KnownFields::Seen seen, known.Walk(small));
  RETURN_IF_ERROR(message->ClaimMore(static_cast<std::int64_t>(seen.grown)));
  if (!parsed->ParseFromString(small)) return NotAMessage();
  if (may_share != nullptr) *may_share = seen.shares || !seen.known;
  if (!seen.known) RETURN_IF_ERROR(known.Check(*parsed));
  message->GiveBack(static_cast<std::int64_t>(small.size()));
  return absl::OkStatus();
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
  RETURN_IF_ERROR(message->ClaimMore(
      static_cast<std::int64_t>(parsed->borrows ? 2 * small.size() : all)));
  if (!parsed->borrows) {
    parsed->split = wire::SplitMessage();
    small = message->Joined();
    message->Clear();
    if (all >= kManyBytes) ReturnFreedMemory();
  }
  return ParseSmall(known, small, message, request, &parsed->may_share);
}

}  // namespace posenc::server
