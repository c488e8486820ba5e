// For builds without OpenTelemetry.

#include "core/error.h"
#include "server/trace/traces.h"

namespace posenc::server {

absl::StatusOr<std::unique_ptr<CallObserver>> StartTraces(
    const std::string& /*endpoint*/) {
  return core::FieldInvalid("--otlp-endpoint",
                            "this posencd was built without traces "
                            "(POSENC_OTLP)");
}

}  // namespace posenc::server
