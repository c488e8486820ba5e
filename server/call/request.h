// A request with parsed small fields. Its tensor bytes stay where gRPC received
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
  // Whether bytes of tensors are borrowed. If not, the generated parser has
  // copied all bytes to the request.
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

// Returns INVALID_ARGUMENT for bytes that are not a valid message of this call.
absl::Status NotAMessage();

// Parses `small` into `parsed`. `small` is a message, or its part without
// borrowed bytes. The caller must have claimed the size of `small` twice for
// `message`. This function releases one of the two claims. Returns the errors
// of Parse(). ParsedMessage explains `may_share`, which may be null.
absl::Status ParseSmall(const KnownFields& known, const std::string& small,
                        RequestMessage* message,
                        google::protobuf::Message* parsed,
                        bool* may_share = nullptr);

// Parses `parsed->message` into `request`, and fills in `parsed`. Returns the
// errors of Parse().
//
// The bytes for the generated parser are copied twice: into a string and then
// into fields. Both copies are claimed until the end of this function, and then
// only one copy. If these bytes are more than 1 MiB and more than half of the
// message, nothing is borrowed, and the message's own memory is freed. So
// memory never contains more than two copies.
absl::Status ParseInto(const KnownFields& known,
                       absl::Span<const int> tensor_fields,
                       google::protobuf::Message* request,
                       ParsedMessage* parsed);

// Parses `message`, and borrows the bytes of the tensors in `tensor_fields`.
// Returns INVALID_ARGUMENT if the message is malformed, or would need many
// times its size (KnownFields::Walk()). Returns UNIMPLEMENTED, kFieldUnknown,
// for fields that this server does not know. Returns RESOURCE_EXHAUSTED if
// there is no memory for the parsed fields.
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
