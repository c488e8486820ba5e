// Reads the text of a target.

#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace posenc {

// Returns INVALID_ARGUMENT if the target is empty, or if an address ends in a
// port beyond 65535. gRPC 1.51 would cut such a port to 16 bits and connect.
// The message begins with "target: ". gRPC checks everything else.
absl::Status CheckTarget(absl::string_view target);

// Returns whether the target is a unix socket.
bool IsUnix(absl::string_view target);

// Returns false for a host without a port, for which gRPC uses port 443.
bool HasPort(absl::string_view target);

}  // namespace posenc
