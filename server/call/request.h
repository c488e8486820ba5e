// A request with parsed small fields; its tensor bytes stay where gRPC received
// them.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/base/status_macros.h"
#include "google/protobuf/message.h"
#include "posenc/wire/split.h"
#include "server/convert/tensor.h"
#include "server/convert/unknown_fields.h"
#include "server/memory/request_message.h"

namespace posenc::server {

// A message whose small fields were parsed.
struct ParsedMessage {
  RequestMessage message;  // owns the borrowed bytes; may be empty
  // False if there are no tensor fields, or if only the generated parser
  // understands the message's framing: then the request has all bytes.
  bool borrows = false;
  // Points into `message`, or into shared memory.
  wire::SplitMessage split;
  OwnedElements owned;     // elements that were sent as `values`
  bool shared = false;     // has tensors in shared memory
  bool may_share = false;  // may name shared memory

  // Returns the borrowed tensors. `fields` are the tensor_fields of Parse().
  BorrowedTensors Borrowed(absl::Span<const int> fields) const {
    if (!borrows && !shared) return BorrowedTensors();
    return BorrowedTensors(fields, split.tensors, shared);
  }

  // Returns a function that claims memory for data made from this message.
  auto Claim() {
    return [this](std::int64_t bytes) { return message.ClaimMore(bytes); };
  }
};

template <typename Request>
struct ParsedRequest : ParsedMessage {
  Request request;  // without the bytes of borrowed tensors
};

// Returns INVALID_ARGUMENT: the bytes are not a valid message of this call.
absl::Status NotAMessage();

// Parses `small`, a message or its part without borrowed bytes, into `parsed`.
// The caller has claimed the bytes of `small` twice, for `message`; this
// function releases one of the two claims. Errors are those of Parse().
// ParsedMessage explains `may_share`, which may be null.
absl::Status ParseSmall(const KnownFields& known, const std::string& small,
                        RequestMessage* message,
                        google::protobuf::Message* parsed,
                        bool* may_share = nullptr);

// Parses `parsed->message` into `request`, and fills in `parsed`. Errors are
// those of Parse().
//
// The bytes for the generated parser are copied twice: into a string and then
// into fields. Both copies are claimed until the end of this function, then
// one. If these bytes are more than 1 MiB and more than half of the message,
// nothing is borrowed, so that memory holds at most twice the message. The
// message's own memory is then freed.
absl::Status ParseInto(const KnownFields& known,
                       absl::Span<const int> tensor_fields,
                       google::protobuf::Message* request,
                       ParsedMessage* parsed);

// Parses `message`, borrowing the bytes of the tensors in `tensor_fields`.
// INVALID_ARGUMENT if the message is malformed, or would need many times its
// size (KnownFields::Walk()); UNIMPLEMENTED, kFieldUnknown, for fields that
// this server does not know; RESOURCE_EXHAUSTED if there is no memory for the
// parsed fields.
template <typename Request>
absl::StatusOr<std::shared_ptr<ParsedRequest<Request>>> Parse(
    RequestMessage message, absl::Span<const int> tensor_fields) {
  auto parsed = std::make_shared<ParsedRequest<Request>>();
  parsed->message = std::move(message);
  RETURN_IF_ERROR(ParseInto(KnownFields::Of<Request>(), tensor_fields,
                            &parsed->request, parsed.get()));
  return parsed;
}

}  // namespace posenc::server
