// What a native response has beside its tensors, as parameters.

#pragma once

#include <string>

#include "google/protobuf/map.h"
#include "google/protobuf/message.h"
#include "inference/inference.pb.h"

namespace posenc::server {

// Adds each field that is set under its own name: scalars in their kind, text
// as string_param, messages and lists as their ProtoJSON.
void AddParameters(
    const google::protobuf::Message& response,
    google::protobuf::Map<std::string, inference::InferParameter>* parameters);

}  // namespace posenc::server
