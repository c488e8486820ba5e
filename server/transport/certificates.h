// Reads certificates from files, and checks them before use, because gRPC 1.51
// accepts a broken file and then fails every handshake.

#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace posenc::server {

// Paths of PEM files. If all are empty, the server uses plaintext. `cert` and
// `key` must be given together.
struct TlsFiles {
  std::string cert;  // the server's certificate, then its intermediates
  std::string key;   // its private key, without a passphrase
  // The CAs of client certificates; empty if clients need no certificate.
  std::string client_ca;
};

// Checked texts in OpenSSL's PEM format.
struct Certificates {
  std::string identity;   // key, server's certificate, its issuers
  std::string client_ca;  // empty if clients need no certificate
  // The earliest expiry of a certificate in the chain.
  absl::Time not_after;
};

// Checks the texts. The field of an error is "--tls-cert", "--tls-key" or
// "--tls-client-ca". Returns INVALID_ARGUMENT if a text is not PEM, or the key
// is encrypted or does not fit the certificate. Also returns it if the chain is
// out of order, is not valid at `now`, or is refused by OpenSSL (for example
// because a key is too short). Errors contain no part of the key.
absl::StatusOr<Certificates> CheckCertificates(absl::string_view chain,
                                               absl::string_view key,
                                               absl::string_view client_ca,
                                               absl::Time now);

// Reads the files and calls CheckCertificates(). All errors name the file.
absl::StatusOr<Certificates> LoadCertificates(const TlsFiles& files,
                                              absl::Time now);

}  // namespace posenc::server
