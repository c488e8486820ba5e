// ModelInferRequest: its small fields parsed, and the bytes of its tensors
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
  inference::ModelInferRequest request;  // without what `raw` has
  RequestMessage message;
  // Of raw_input_contents. Points into `message` (`borrows`), or, for a message
  // that is framed in a way that only the generated parser understands, into
  // `request`.
  std::vector<wire::BorrowedBytes> raw;
  bool borrows = false;
};

// Parses into an envelope that stays where it is. INVALID_ARGUMENT for what is
// no protobuf message, or has more tensors or parameters than any model takes;
// UNIMPLEMENTED, kFieldUnknown, for fields that this server does not know;
// RESOURCE_EXHAUSTED, kMessageTooLarge, if there are more than 16 MiB beside
// raw_input_contents.
absl::Status Parse(RequestMessage message, InferEnvelope* envelope);

// The bytes of an input's typed contents, which stay where they are: in
// `input`. INVALID_ARGUMENT, without a field, if they are not of its datatype,
// or if that has no typed form.
absl::StatusOr<wire::BorrowedBytes> TypedBytes(
    const inference::ModelInferRequest::InferInputTensor& input);

}  // namespace posenc::server
