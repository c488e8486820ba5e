// Asks a server for its health. Kubernetes' and Docker's exec probes run it as
// `posencd --probe`, so that an image needs no other program for them.

#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace posenc::server {

// How the probe speaks TLS. Unix sockets are plaintext in any case, as the
// server's are.
struct ProbeTls {
  std::string ca;           // file of authorities; empty: plaintext
  std::string server_name;  // in the certificate; empty: the address's
  // Files of what is shown to a server that wants a certificate; may be empty.
  std::string cert, key;
};

// OK if the server at `address`, a gRPC target, says that `service` is SERVING.
// INVALID_ARGUMENT, field "--tls-ca" and the like, if a file cannot be used.
absl::Status Probe(const std::string& address, const std::string& service,
                   const ProbeTls& tls, absl::Duration timeout);

}  // namespace posenc::server
