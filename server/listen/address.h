// Addresses that a server can listen on.

#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace posenc::server {

// A parsed --listen value. One of host and path is empty.
struct Address {
  std::string text;  // as given
  std::string host;  // of "host:port" and "[ipv6]:port"
  std::string path;  // of "unix:/path"
};

// INVALID_ARGUMENT, field "--listen", for anything else.
absl::StatusOr<Address> ParseAddress(const std::string& text);

// Whether only this machine can reach the host. A unix socket has none.
bool IsLoopback(const std::string& host);

// UNAVAILABLE unless nothing is at the path, or a socket on which nobody
// listens. Binding unlinks what is there.
absl::Status CheckUnixPath(const Address& address);

// The errors of the functions above, with the address in front of the fact.
absl::Status BadAddress(const std::string& address, const std::string& fact);
absl::Status CannotBind(const std::string& address, const std::string& why);

}  // namespace posenc::server
