// The socket on which the admin server listens.

#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace posenc::server {

struct ListenSocket {
  int fd = -1;            // listens, does not block; the caller closes it
  std::string address;    // as bound: "127.0.0.1:40123", "unix:/path"
  std::string host;       // as given; "" of a unix socket
  std::string unix_path;  // to be removed in the end; "" otherwise
};

// `address`: as that of --listen. Errors name --admin: INVALID_ARGUMENT for
// what is no address, UNAVAILABLE if it cannot be bound.
absl::StatusOr<ListenSocket> ListenForAdmin(const std::string& address);

}  // namespace posenc::server
