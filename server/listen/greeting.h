// What a server says first on an HTTP/2 connection.

#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "grpcpp/server_builder.h"

namespace posenc::server {

// Asks gRPC for its SETTINGS frame, over a connection within the process.
//
// A listener that greets clients in gRPC's place must say what gRPC will say:
// a client's acknowledgement of the one is taken for that of the other, and
// from then on gRPC holds the client to its limits, of streams and of bytes
// that nobody reads yet.
absl::StatusOr<std::string> AskForSettings(
    grpc::experimental::ExternalConnectionAcceptor* acceptor);

}  // namespace posenc::server
