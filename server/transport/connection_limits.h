// Limits for connections: their number, their times, and their calls.

#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace posenc::server {

struct ConnectionLimits {
  // Largest number of connections at the same time. Further connections are
  // closed. 0 means 4096, or (the process's limit of file descriptors - 64) / 2
  // if this number is smaller.
  std::int64_t max_connections = 0;
  // Largest number of connections from one IPv4 address, or one /64 of IPv6.
  // Peers on a unix socket cannot be distinguished, and have no such limit.
  std::int64_t max_connections_per_peer = 2048;

  // Longest time from accepting a connection to the end of its TLS handshake
  // and its SETTINGS frame of HTTP/2.
  absl::Duration handshake_timeout = absl::Seconds(10);
  // Time without a call after which a connection gets GOAWAY and is closed.
  absl::Duration max_connection_idle = absl::Minutes(5);

  // The server pings a connection after keepalive_time without traffic. It
  // closes the connection if no answer comes within keepalive_timeout, or if
  // the peer takes no bytes in this time (on a unix socket, up to 1 s longer).
  absl::Duration keepalive_time = absl::Seconds(60);
  absl::Duration keepalive_timeout = absl::Seconds(20);
  // Shortest allowed interval between two pings of a peer. gRPC closes the
  // connection at the third ping that comes sooner, and does not report this to
  // the server. Common clients ping every 30 s; gRPC's own limit of 5 min would
  // close their connections.
  absl::Duration keepalive_min_interval = absl::Seconds(10);

  // Limit for the calls in progress on one connection. While the server is
  // busy, new calls wait in the socket. A call takes memory after it is read.
  // Under overload, 16 connections with 1024 calls each took 600 MiB. Clients
  // in Go, Java, Node and Rust assume a limit of 100 until they get the real
  // limit (RFC 9113, section 6.5.2). gRPC 1.51 ends the connection of a peer
  // that exceeds the limit. So the default is not below 100.
  int max_concurrent_streams = 100;

  // Limit for the size of a call's metadata, 1 KiB to 1 MiB. The size is the
  // bytes of names and values, plus 32 for each pair (RFC 9113, section 6.5.2).
  // A call with more metadata is refused. gRPC 1.51 reads the metadata before
  // this check, so the limit does not bound memory.
  std::int64_t max_metadata_bytes = 8 << 10;
};

inline constexpr std::int64_t kLeastMetadata = 1 << 10;
inline constexpr std::int64_t kMostMetadata = 1 << 20;

// Returns INVALID_ARGUMENT if the process has too few file descriptors for
// these limits. config/keys.cc checks the range of each single limit.
absl::Status CheckConnectionLimits(const ConnectionLimits& limits);

// Returns `limits` with zeros replaced by defaults.
ConnectionLimits WithDefaults(ConnectionLimits limits);

}  // namespace posenc::server
