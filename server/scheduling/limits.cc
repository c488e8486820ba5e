#include "server/scheduling/limits.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/base/text.h"
#include "server/base/machine.h"

namespace posenc::server {

absl::Status CheckLimits(const Limits& limits) {
  if (limits.in_flight_bytes == 0 ||
      limits.in_flight_bytes >= limits.max_request_bytes) {
    return absl::OkStatus();
  }
  return core::FieldInvalid("--in-flight-bytes",
                            core::SizeText(limits.in_flight_bytes),
                            "; must hold one request: raise it, or lower "
                            "--max-request-bytes (",
                            core::SizeText(limits.max_request_bytes), ")");
}

Limits WithDefaults(Limits limits) {
  if (limits.in_flight_bytes == 0) {
    limits.in_flight_bytes =
        std::max(UsableMemory() / 2,
                 limits.max_request_bytes + limits.max_response_bytes);
  }
  if (limits.threads == 0) limits.threads = UsableCpus();
  return limits;
}

}  // namespace posenc::server
