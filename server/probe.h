// Asks a server for its health. Kubernetes' and Docker's exec probes run it as
// `posencd --probe`, so that an image needs no other program for them.

#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace posenc::server {

// OK if the server at `address`, a gRPC target, says that `service` is SERVING.
absl::Status Probe(const std::string& address, const std::string& service,
                   absl::Duration timeout);

}  // namespace posenc::server
