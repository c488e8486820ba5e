// The files that make a listener speak TLS.

#pragma once

#include <string>

namespace posenc::server {

// PEM files. All empty: plaintext. `cert` and `key` come together.
struct TlsFiles {
  std::string cert;       // the server's certificate, then its intermediates
  std::string key;        // its private key, without a passphrase
  std::string client_ca;  // not empty: clients must show a certificate of these
};

}  // namespace posenc::server
