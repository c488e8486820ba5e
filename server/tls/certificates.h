// Certificates as files bring them, checked before anything uses them: gRPC
// 1.51 takes a broken file and then fails every handshake.

#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/tls/tls_files.h"

namespace posenc::server {

// PEM as OpenSSL writes it, known to work.
struct Certificates {
  std::string identity;   // the key, the server's certificate, its issuers
  std::string client_ca;  // empty if clients need no certificate
  // When the first certificate of the chain to expire does so.
  absl::Time not_after;
};

// INVALID_ARGUMENT, field "--tls-cert", "--tls-key" or "--tls-client-ca", if a
// text is no PEM, the key is encrypted or not the certificate's, the chain is
// out of order, a certificate of it is not valid at `now`, or OpenSSL will not
// use it (too short a key). No message holds any of the key.
absl::StatusOr<Certificates> CheckCertificates(absl::string_view chain,
                                               absl::string_view key,
                                               absl::string_view client_ca,
                                               absl::Time now);

// The same of files; the error names the file too. Also if one cannot be read.
absl::StatusOr<Certificates> LoadCertificates(const TlsFiles& files,
                                              absl::Time now);

}  // namespace posenc::server
