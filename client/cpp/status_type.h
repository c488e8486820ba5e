#pragma once

namespace posenc {

// The payload of an absl::Status that holds the server's google.rpc.Status,
// which calls.cc attaches and messages.cc reads.
constexpr char kStatusType[] = "type.googleapis.com/google.rpc.Status";

}  // namespace posenc
