// Parameters as scalar fields.

#pragma once

#include "absl/status/status.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "inference/inference.pb.h"

namespace posenc::server {

// Sets the scalar `field` of `message`. bool from bool_param; integers from
// int64_param or uint64_param; floats from double_param or an integer; all of
// them from their text; strings and enums from string_param, enums by their
// full name or by what follows their prefix, in lower case. INVALID_ARGUMENT,
// without a field, for any other kind and for what does not fit.
absl::Status SetScalar(const inference::InferParameter& value,
                       const google::protobuf::FieldDescriptor& field,
                       google::protobuf::Message* message);

// "int64_param", or "no value".
const char* KindOf(const inference::InferParameter& value);

}  // namespace posenc::server
