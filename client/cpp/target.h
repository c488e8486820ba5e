// Faults of a target that its text alone shows.

#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace posenc {

// INVALID_ARGUMENT, whose message begins with "target: ", if there is none, or
// if an address ends in a port beyond 65535: gRPC 1.51 would cut it to 16 bits
// and call whatever listens there. All else is gRPC's to judge.
absl::Status CheckTarget(absl::string_view target);

}  // namespace posenc
