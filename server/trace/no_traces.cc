// Builds without OpenTelemetry compile this file instead of otlp_traces.cc. In
// these builds, --otlp-endpoint is an error.

#include "core/base/error.h"
#include "server/trace/traces.h"

namespace posenc::server {

absl::Status CheckTraces(const std::string& /*endpoint*/) {
  return core::FieldInvalid("--otlp-endpoint",
                            "this posencd was built without traces "
                            "(POSENC_OTLP)");
}

absl::StatusOr<std::unique_ptr<CallObserver>> StartTraces(
    const std::string& endpoint) {
  return CheckTraces(endpoint);
}

}  // namespace posenc::server
