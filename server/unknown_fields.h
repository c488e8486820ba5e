// Requests of newer clients.

#pragma once

#include "absl/status/status.h"
#include "google/protobuf/message.h"

namespace posenc::server {

// UNIMPLEMENTED, kFieldUnknown, for a field or enum value anywhere in `message`
// that this server does not know. Protobuf would skip it, and the numbers would
// lack what it asks for. Costs a walk over the fields that are set; the
// contents of bytes, strings and repeated numbers are not looked at.
absl::Status RefuseUnknown(const google::protobuf::Message& message);

}  // namespace posenc::server
