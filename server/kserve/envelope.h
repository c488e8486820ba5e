// ModelInferRequest with parsed small fields; the bytes of its tensors stay
// where gRPC received them.

#pragma once

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "inference/inference.pb.h"
#include "posenc/wire/split.h"
#include "server/memory/request_message.h"

namespace posenc::server {

struct InferEnvelope {
  inference::ModelInferRequest request;  // without the bytes in `raw`
  RequestMessage message;
  // Bytes of raw_input_contents. They point into `message` (`borrows`), or into
  // `request` if only the generated parser understands the message's framing.
  std::vector<wire::BorrowedBytes> raw;
  bool borrows = false;
};

// Parses into an envelope that must not move afterwards. INVALID_ARGUMENT for a
// malformed message, or one with more tensors or parameters than any model
// takes; UNIMPLEMENTED, kFieldUnknown, for fields that this server does not
// know; RESOURCE_EXHAUSTED, kMessageTooLarge, if the message has more than 16
// MiB beside raw_input_contents.
absl::Status Parse(RequestMessage message, InferEnvelope* envelope);

// Returns the bytes of an input's typed contents, which stay in `input`.
// INVALID_ARGUMENT, without a field, if they do not match its datatype, or if
// the datatype has no typed form.
absl::StatusOr<wire::BorrowedBytes> TypedBytes(
    const inference::ModelInferRequest::InferInputTensor& input);

}  // namespace posenc::server
