#include "server/transport/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "core/base/error.h"

namespace posenc::server {

absl::Status BadAddress(const Address& address, absl::string_view fact) {
  return core::FieldInvalid(address.flag, address.text, ": ", fact);
}

absl::StatusOr<Address> ParseAddress(const std::string& text,
                                     const std::string& flag) {
  Address address;
  address.flag = flag;
  address.text = text;
  absl::string_view rest = text;
  if (absl::ConsumePrefix(&rest, "unix:")) {
    address.path = std::string(rest);
    const std::size_t longest = sizeof(sockaddr_un::sun_path) - 1;
    if (rest.empty())
      return BadAddress(address, "no path; expected unix:/path");
    if (rest.size() > longest) {
      return BadAddress(address, absl::StrCat("a path of ", rest.size(),
                                              " bytes; at most ", longest));
    }
    return address;
  }
  const std::size_t colon = rest.rfind(':');
  const absl::string_view host = rest.substr(0, colon);
  const bool bracketed = absl::StartsWith(host, "[") &&
                         absl::EndsWith(host, "]") && host.size() > 2;
  int port = 0;
  if (colon == absl::string_view::npos || host.empty() ||
      (!bracketed && absl::StrContains(host, ":")) ||
      !absl::SimpleAtoi(rest.substr(colon + 1), &port) || port < 0 ||
      port > 65535) {
    return BadAddress(
        address,
        "expected host:port, [ipv6]:port or unix:/path, port 0..65535");
  }
  address.host =
      std::string(bracketed ? host.substr(1, host.size() - 2) : host);
  return address;
}

bool IsLoopback(const std::string& host) {
  if (host == "localhost") return true;
  in_addr v4;
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) {
    return (ntohl(v4.s_addr) >> 24) == 127;
  }
  in6_addr v6;
  return inet_pton(AF_INET6, host.c_str(), &v6) == 1 &&
         IN6_IS_ADDR_LOOPBACK(&v6);
}

}  // namespace posenc::server
