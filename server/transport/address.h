// Parses and checks the addresses that a server listens on.

#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace posenc::server {

// A parsed value of --listen or --admin. Either host or path is empty.
struct Address {
  std::string flag;  // the flag that errors name
  std::string text;  // as given
  std::string host;  // of "host:port" and "[ipv6]:port"
  std::string path;  // of "unix:/path"
};

// Parses an address. Returns INVALID_ARGUMENT, field `flag`, for other forms.
absl::StatusOr<Address> ParseAddress(const std::string& text,
                                     const std::string& flag = "--listen");

// Returns whether only this machine can reach the host.
bool IsLoopback(const std::string& host);

// Returns INVALID_ARGUMENT with the flag of `address` as its field. The message
// is the text of `address`, followed by `fact`.
absl::Status BadAddress(const Address& address, absl::string_view fact);

}  // namespace posenc::server
