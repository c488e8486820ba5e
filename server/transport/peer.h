// The address at the other end of a connection.

#pragma once

#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"

namespace posenc::server {

// An IP address and a port. IPv4 addresses are mapped into IPv6, and scopes of
// link-local addresses are left out, so that equal peers have equal keys.
struct Peer {
  std::array<std::uint8_t, 16> address = {};
  std::uint16_t port = 0;

  // Returns nullopt for an address that is not an IP address.
  static std::optional<Peer> Of(const sockaddr_storage& name);

  // Parses gRPC's text of a peer, such as "ipv4:127.0.0.1:40123" or
  // "ipv6:%5B::1%5D:40123". Returns nullopt for other texts ("unix:",
  // "inproc").
  static std::optional<Peer> Parse(absl::string_view text);

  using HostBytes = std::array<std::uint8_t, 16>;

  // Returns a key for the host: its IPv4 address, or the first 64 bits of its
  // IPv6 address, because a host may use all addresses with these bits.
  HostBytes Host() const;

  friend bool operator==(const Peer&, const Peer&) = default;
};

}  // namespace posenc::server
