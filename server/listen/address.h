// Addresses that a server can listen on.

#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace posenc::server {

// A parsed value of --listen or --admin. One of host and path is empty.
struct Address {
  std::string flag;  // names the address in errors
  std::string text;  // as given
  std::string host;  // of "host:port" and "[ipv6]:port"
  std::string path;  // of "unix:/path"
};

// INVALID_ARGUMENT, field `flag`, for anything else.
absl::StatusOr<Address> ParseAddress(const std::string& text,
                                     const std::string& flag = "--listen");

// Whether only this machine can reach the host. A unix socket has none.
bool IsLoopback(const std::string& host);

// UNAVAILABLE unless nothing is at the path, or a socket on which nobody
// listens. Binding unlinks what is there.
absl::Status CheckUnixPath(const Address& address);

// The errors of the functions above, with the address in front of the fact.
absl::Status BadAddress(const Address& address, absl::string_view fact);
absl::Status CannotBind(const Address& address, absl::string_view why);

}  // namespace posenc::server
