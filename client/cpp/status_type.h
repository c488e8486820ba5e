#pragma once

namespace posenc {

// Payloads of an absl::Status, which calls.cc attaches and messages.cc reads:
// the server's google.rpc.Status.
constexpr char kStatusType[] = "type.googleapis.com/google.rpc.Status";

// The payload that holds the request id of the call that ended so.
constexpr char kRequestIdType[] = "posenc/request-id";

}  // namespace posenc
