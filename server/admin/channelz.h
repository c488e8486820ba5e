// gRPC's channelz: servers and sockets of this process, as JSON.

#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace posenc::server {

// The page of a path, which is one of
//   /channelz/servers              or /channelz alone
//   /channelz/server/ID            /channelz/server/ID/sockets
//   /channelz/socket/ID
// in the form of grpc.channelz.v1 as JSON; lists hold gRPC's 100 at most.
// NOT_FOUND for another path, and for an ID that there is not. gRPC must have
// been initialised.
absl::StatusOr<std::string> ChannelzPage(absl::string_view path);

}  // namespace posenc::server
