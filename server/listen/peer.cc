#include "server/listen/peer.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"

namespace posenc::server {
namespace {

// ::ffff:0:0/96, where IPv6 has IPv4.
constexpr std::size_t kMappedBytes = 12;
constexpr std::array<std::uint8_t, kMappedBytes> kMapped = {
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

std::array<std::uint8_t, 16> Mapped(const in_addr& v4) {
  std::array<std::uint8_t, 16> address;
  std::copy(kMapped.begin(), kMapped.end(), address.begin());
  std::memcpy(&address[kMappedBytes], &v4, sizeof(v4));
  return address;
}

// Copies a piece of text for functions that want it terminated. False if it is
// longer than any address.
bool Terminated(absl::string_view text, char (&out)[INET6_ADDRSTRLEN]) {
  if (text.size() >= sizeof(out)) return false;
  text.copy(out, text.size());
  out[text.size()] = '\0';
  return true;
}

}  // namespace

std::optional<Peer> Peer::Of(const sockaddr_storage& name) {
  Peer peer;
  if (name.ss_family == AF_INET) {
    sockaddr_in v4;
    std::memcpy(&v4, &name, sizeof(v4));
    peer.address = Mapped(v4.sin_addr);
    peer.port = ntohs(v4.sin_port);
    return peer;
  }
  if (name.ss_family == AF_INET6) {
    sockaddr_in6 v6;
    std::memcpy(&v6, &name, sizeof(v6));
    std::memcpy(peer.address.data(), &v6.sin6_addr, peer.address.size());
    peer.port = ntohs(v6.sin6_port);
    return peer;
  }
  return std::nullopt;
}

std::optional<Peer> Peer::Parse(absl::string_view text) {
  const bool v4 = absl::ConsumePrefix(&text, "ipv4:");
  if (!v4 && !absl::ConsumePrefix(&text, "ipv6:")) return std::nullopt;
  const std::size_t colon = text.rfind(':');
  std::uint32_t port = 0;
  if (colon == absl::string_view::npos ||
      !absl::SimpleAtoi(text.substr(colon + 1), &port) || port > 65535) {
    return std::nullopt;
  }
  text = text.substr(0, colon);
  // Brackets come escaped or as they are.
  for (const absl::string_view open : {"%5B", "["}) {
    absl::ConsumePrefix(&text, open);
  }
  text = text.substr(0, text.find_first_of("%]"));
  char address[INET6_ADDRSTRLEN];
  if (!Terminated(text, address)) return std::nullopt;
  Peer peer;
  peer.port = static_cast<std::uint16_t>(port);
  if (v4) {
    in_addr number;
    if (inet_pton(AF_INET, address, &number) != 1) return std::nullopt;
    peer.address = Mapped(number);
    return peer;
  }
  if (inet_pton(AF_INET6, address, peer.address.data()) != 1) {
    return std::nullopt;
  }
  return peer;
}

Peer::HostBytes Peer::Host() const {
  HostBytes host = address;
  if (!std::equal(kMapped.begin(), kMapped.end(), address.begin())) {
    std::fill(host.begin() + 8, host.end(), 0);
  }
  return host;
}

}  // namespace posenc::server
