// ProtoJSON in parameters: messages and lists as texts.

#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"

namespace posenc::server {

// Sets the message or the list `field` of `message`, which is not set yet, from
// its JSON. INVALID_ARGUMENT for what is no JSON, has a key twice or one that
// the field has not, or is nested deeper than 64. The error has no field.
absl::Status ReadJson(absl::string_view json,
                      const google::protobuf::FieldDescriptor& field,
                      google::protobuf::Message* message);

// The JSON of a message or list that is set, with the contract's names.
std::string WriteJson(const google::protobuf::Message& message,
                      const google::protobuf::FieldDescriptor& field);

}  // namespace posenc::server
