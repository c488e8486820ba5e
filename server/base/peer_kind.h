// The kind of connection between a peer and the server.

#pragma once

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"

namespace posenc::server {

enum class PeerKind { kUnix, kLoopback, kTcp, kInProcess };

// `peer` is gRPC's text of a peer, such as "ipv4:10.0.0.7:40123". gRPC calls a
// client in the same process "inproc" or "unknown".
inline PeerKind PeerKindOf(absl::string_view peer) {
  if (absl::StartsWith(peer, "unix")) return PeerKind::kUnix;
  // gRPC writes the brackets of an IPv6 address unchanged or percent-encoded.
  for (const char* const local : {"ipv4:127.", "ipv6:[::1]:", "ipv6:%5B::1%5D:",
                                  "ipv6:[::ffff:127.", "ipv6:%5B::ffff:127."}) {
    if (absl::StartsWith(peer, local)) return PeerKind::kLoopback;
  }
  return absl::StartsWith(peer, "ipv") ? PeerKind::kTcp : PeerKind::kInProcess;
}

}  // namespace posenc::server
