// The names of the files for TLS.

#pragma once

#include <string>

namespace posenc::server {

// PEM files. All empty: plaintext. `cert` and `key` are needed together.
struct TlsFiles {
  std::string cert;       // the server's certificate, then its intermediates
  std::string key;        // its private key, without a passphrase
  std::string client_ca;  // authorities of required client certificates
};

}  // namespace posenc::server
