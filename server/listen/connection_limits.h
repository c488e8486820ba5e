// How many connections the server holds, and how long one may take to become
// useful.

#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace posenc::server {

struct ConnectionLimits {
  // Connections at any time. 0 stands for 4096, or, if that is fewer, for half
  // of the process' limit of file descriptors less 64: each connection has two.
  // At the limit, a new connection is closed.
  std::int64_t max_connections = 0;
  // The same from one IPv4 address, or one /64 of IPv6. Peers on a unix socket
  // cannot be told apart and have no such limit.
  std::int64_t max_connections_per_peer = 2048;

  // From accepting a connection to the end of its TLS handshake and the
  // SETTINGS frame of HTTP/2.
  absl::Duration handshake_timeout = absl::Seconds(10);
  // Time without a call after which a connection is told to go (GOAWAY), and
  // closed.
  absl::Duration max_connection_idle = absl::Minutes(5);

  // A connection is pinged after keepalive_time without traffic. It is closed
  // if no answer comes within keepalive_timeout, or if its peer takes nothing
  // of what is sent for that long (on a unix socket, up to 1 s longer).
  absl::Duration keepalive_time = absl::Seconds(60);
  absl::Duration keepalive_timeout = absl::Seconds(20);

  // Calls in progress on one connection. What a connection has begun waits in
  // its socket while the server is busy, and holds memory once it is read: past
  // capacity, 16 connections with 1024 calls each made every call wait for 0.2
  // s and took 600 MiB. Clients assume 100 until they are told (RFC 9113,
  // section 6.5.2, and what Go, Java, Node and Rust do), and gRPC 1.51 ends the
  // whole connection of a peer who exceeds it, so it is not below.
  int max_concurrent_streams = 100;

  // Names and values of a call's metadata, and 32 bytes for each pair (RFC
  // 9113, section 6.5.2): 1 KiB to 1 MiB. A call that has more is refused.
  // gRPC 1.51 has read it by then, so this is no bound of memory.
  std::int64_t max_metadata_bytes = 8 << 10;
};

inline constexpr std::int64_t kLeastMetadata = 1 << 10;
inline constexpr std::int64_t kMostMetadata = 1 << 20;

// INVALID_ARGUMENT for a value out of range, field: the flag's name.
absl::Status CheckConnectionLimits(const ConnectionLimits& limits);

// Fills in what 0 stands for.
ConnectionLimits WithDefaults(ConnectionLimits limits);

}  // namespace posenc::server
