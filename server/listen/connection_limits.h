// How many connections the server holds, and how long one may take to become
// useful.

#pragma once

#include <cstdint>

#include "absl/time/time.h"

namespace posenc::server {

struct ConnectionLimits {
  // Connections at any time. 0 stands for 4096, or for the process' limit of
  // file descriptors less 64 if that is fewer. At the limit, connections that
  // never began a call are closed first, the oldest first.
  std::int64_t max_connections = 0;
  // The same from one address.
  std::int64_t max_connections_per_peer = 2048;

  // From accepting a connection to its complete TLS handshake and HTTP/2
  // preface.
  absl::Duration handshake_timeout = absl::Seconds(10);
  // From the first byte of a connection's first call to its complete headers.
  absl::Duration headers_timeout = absl::Seconds(10);
  // From accepting a connection to its first call.
  absl::Duration first_call_timeout = absl::Seconds(30);

  // A connection is pinged after this time without traffic, and closed if no
  // answer comes in the time after it.
  absl::Duration keepalive_time = absl::Seconds(60);
  absl::Duration keepalive_timeout = absl::Seconds(20);

  // Calls in progress on one connection. gRPC 1.51 ends the whole connection of
  // a peer who exceeds it, so it is well above what clients keep in flight.
  int max_concurrent_streams = 1024;
};

}  // namespace posenc::server
