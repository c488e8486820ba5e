// Parameters as fields of the contract's messages, and back.
//
// bool from bool_param; integers from int64_param or uint64_param; floats from
// double_param or an integer; all of them from their text. Strings and enums
// from string_param, enums by their full name or by what follows their prefix,
// in lower case. Messages and lists from string_param with their ProtoJSON.

#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/map.h"
#include "google/protobuf/message.h"
#include "inference/inference.pb.h"

namespace posenc::server {

using ParameterMap =
    google::protobuf::Map<std::string, inference::InferParameter>;

// Errors here are INVALID_ARGUMENT without a field.

// "is int64_param; must be <wanted>".
absl::Status WrongKind(const inference::InferParameter& value,
                       absl::string_view wanted);

bool IsInteger(const inference::InferParameter& value);

// An integer that is not negative. unit: ends the error of another kind.
absl::StatusOr<std::uint64_t> ReadCount(const inference::InferParameter& value,
                                        absl::string_view unit = "");

// Sets `field` of `message`, which is not set yet. An error for any other kind,
// for what does not fit, and for JSON that has a key twice or one that the
// field has not, or is nested deeper than 64.
absl::Status SetField(const inference::InferParameter& value,
                      const google::protobuf::FieldDescriptor& field,
                      google::protobuf::Message* message);

// Adds each field of `response` that is set under its own name, and takes
// messages and lists out of it.
void AddParameters(google::protobuf::Message* response,
                   ParameterMap* parameters);

}  // namespace posenc::server
