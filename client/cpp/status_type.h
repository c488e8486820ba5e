// Under which name an absl::Status carries the server's google.rpc.Status.

#pragma once

namespace posenc {

constexpr char kStatusType[] = "type.googleapis.com/google.rpc.Status";

}  // namespace posenc
