// Reads certificates from files, and checks them before use, because gRPC 1.51
// accepts a broken file and then fails every handshake.

#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace posenc::server {

// PEM files. All empty: plaintext. `cert` and `key` are needed together.
struct TlsFiles {
  std::string cert;  // the server's certificate, then its intermediates
  std::string key;   // its private key, without a passphrase
  // The CAs of client certificates. If set, clients must send a certificate.
  std::string client_ca;
};

// Texts in OpenSSL's PEM format that have been checked.
struct Certificates {
  std::string identity;   // key, server's certificate, its issuers
  std::string client_ca;  // empty if clients need no certificate
  // The earliest expiry of a certificate in the chain.
  absl::Time not_after;
};

// Checks the texts. INVALID_ARGUMENT, field "--tls-cert", "--tls-key" or
// "--tls-client-ca", if a text is not PEM, the key is encrypted or does not fit
// the certificate, the chain is out of order or not valid at `now`, or OpenSSL
// refuses it (for example because a key is too short). Errors contain no part
// of the key.
absl::StatusOr<Certificates> CheckCertificates(absl::string_view chain,
                                               absl::string_view key,
                                               absl::string_view client_ca,
                                               absl::Time now);

// Reads the files and checks them in the same way. Errors name the file, even
// if it cannot be read.
absl::StatusOr<Certificates> LoadCertificates(const TlsFiles& files,
                                              absl::Time now);

}  // namespace posenc::server
