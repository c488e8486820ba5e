// Asks a server for its health, as Kubernetes' and Docker's exec probes do: an
// image needs no other program for them.

#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace posenc::server {

// OK where the server at `address`, a gRPC target, says that `service` is
// SERVING.
absl::Status Probe(const std::string& address, const std::string& service,
                   absl::Duration timeout);

}  // namespace posenc::server
