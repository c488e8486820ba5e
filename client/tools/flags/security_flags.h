// The flags for TLS and tokens of posenc and posenc-load.

#pragma once

#include <string>

#include "absl/status/status.h"
#include "client/tools/flags/command_line.h"
#include "posenc/client.h"

namespace posenc::flags {

struct SecurityFlags {
  bool tls = false;
  TlsOptions tls_options;
  std::string token_file;

  bool UseTls() const {
    return tls || !tls_options.ca_file.empty() ||
           !tls_options.cert_file.empty() || !tls_options.key_file.empty() ||
           !tls_options.server_name.empty();
  }
  bool Given() const { return UseTls() || !token_file.empty(); }
};

void AddSecurityFlags(CLI::App* app, SecurityFlags* flags);

// Sets the credentials of `options`. The target must be set already. Returns
// INVALID_ARGUMENT if a file cannot be used, or if the token must not be sent
// to the target. The error message begins with the flag.
absl::Status ApplySecurityFlags(const SecurityFlags& flags,
                                ClientOptions* options);

}  // namespace posenc::flags
