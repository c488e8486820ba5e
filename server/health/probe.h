// Asks a server for its health. The exec probes of Kubernetes and Docker run
// `posencd --probe`, so that an image needs no other program.

#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace posenc::server {

// TLS of the probe. Unix sockets are always plaintext, as on the server.
struct ProbeTls {
  std::string ca;           // file of trusted authorities; empty: plaintext
  std::string server_name;  // name in the certificate; empty: the host
  // Files of the probe's own certificate and key; empty if the server requires
  // no certificate.
  std::string cert, key;
};

// Returns OK if the server reports `service` as SERVING. `address` is a gRPC
// target. Returns INVALID_ARGUMENT for a bad file; the error's field is the
// file's flag.
absl::Status Probe(const std::string& address, const std::string& service,
                   const ProbeTls& tls, absl::Duration timeout);

}  // namespace posenc::server
