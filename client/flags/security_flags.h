// The flags for TLS and tokens of posenc and posenc-load.

#pragma once

#include <string>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "posenc/client.h"

namespace posenc::flags {

struct SecurityFlags {
  bool tls = false;
  std::string tls_ca, tls_cert, tls_key, tls_server_name;
  std::string token_file;

  // Returns true if any flag is given.
  bool Given() const;
};

void AddSecurityFlags(CLI::App* app, SecurityFlags* flags);

// Sets the credentials of `options`. The target must be set already.
// INVALID_ARGUMENT, beginning with the flag, if a file cannot be used, or the
// token must not be sent to the target.
absl::Status ApplySecurityFlags(const SecurityFlags& flags,
                                ClientOptions* options);

}  // namespace posenc::flags
