#include "server/transport/peer.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace posenc::server {
namespace {

// The prefix ::ffff:0:0/96 for IPv4 addresses in IPv6.
constexpr std::array<std::uint8_t, 12> kMapped = {0, 0, 0, 0, 0,    0,
                                                  0, 0, 0, 0, 0xff, 0xff};

}  // namespace

std::optional<Peer> Peer::Of(const sockaddr_storage& name) {
  Peer peer;
  if (name.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(name);
    std::memcpy(&peer.address, &kMapped, kMapped.size());
    std::memcpy(&peer.address[kMapped.size()], &v4.sin_addr,
                sizeof(v4.sin_addr));
    peer.port = ntohs(v4.sin_port);
  } else if (name.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(name);
    std::memcpy(&peer.address, &v6.sin6_addr, peer.address.size());
    peer.port = ntohs(v6.sin6_port);
  } else {
    return std::nullopt;
  }
  return peer;
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
  // Brackets may be percent-encoded.
  if (!absl::ConsumePrefix(&text, "%5B")) absl::ConsumePrefix(&text, "[");
  const std::string host = absl::StrCat(
      v4 ? "::ffff:" : "", text.substr(0, text.find_first_of("%]")));
  Peer peer;
  peer.port = static_cast<std::uint16_t>(port);
  if (inet_pton(AF_INET6, host.c_str(), &peer.address) != 1) {
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
