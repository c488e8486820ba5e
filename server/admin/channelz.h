// gRPC's channelz, as JSON: the servers and sockets of this process.

#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace posenc::server {

// Returns the page of a path, which is one of
//   /channelz/servers              or /channelz alone
//   /channelz/server/ID            /channelz/server/ID/sockets
//   /channelz/socket/ID
// in the form of grpc.channelz.v1 as JSON; lists have at most gRPC's 100
// entries. NOT_FOUND for another path and for an unknown ID. gRPC must have
// been initialised.
absl::StatusOr<std::string> ChannelzPage(absl::string_view path);

}  // namespace posenc::server
