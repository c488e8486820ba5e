// Converts parameters to fields of the contract's messages, and back.
//
// bool comes from bool_param, integers from int64_param or uint64_param, floats
// from double_param or an integer. All of these may also be text in
// string_param. Strings and enums come from string_param. The text of an enum
// is the value's full name ("LAYOUT_BSHD"), or the name in lower case without
// its prefix ("bshd"). Messages and lists come from string_param, as ProtoJSON.

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

// Errors of these functions are INVALID_ARGUMENT and name no field.

// Returns an error such as "is int64_param; must be <wanted>".
absl::Status WrongKind(const inference::InferParameter& value,
                       absl::string_view wanted);

bool IsInteger(const inference::InferParameter& value);

// Reads an integer that is not negative. `unit`, such as ", microseconds", is
// added to the error about a value of the wrong kind.
absl::StatusOr<std::uint64_t> ReadCount(const inference::InferParameter& value,
                                        absl::string_view unit = "");

// Sets `field` of `message`, which must not be set yet. Returns an error for a
// value of the wrong kind, a value that does not fit, and JSON with a repeated
// or unknown key or more than 64 levels.
absl::Status SetField(const inference::InferParameter& value,
                      const google::protobuf::FieldDescriptor& field,
                      google::protobuf::Message* message);

// Adds each set field of `response` as a parameter with the field's name. Moves
// messages and lists out of `response`.
void AddParameters(google::protobuf::Message* response,
                   ParameterMap* parameters);

}  // namespace posenc::server
