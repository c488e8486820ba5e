#include "server/budget/limits.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/error.h"
#include "server/budget/machine.h"

namespace posenc::server {
namespace {

absl::Status CheckMessage(absl::string_view flag, std::int64_t bytes) {
  if (bytes >= 1 && bytes <= kMaxProtobufBytes) return absl::OkStatus();
  return core::FieldInvalid(
      flag, absl::StrCat(bytes, " bytes; must be 1 to ", kMaxProtobufBytes,
                         ", the most that protobuf can frame"));
}

absl::Status CheckNotNegative(absl::string_view flag, std::int64_t value) {
  if (value >= 0) return absl::OkStatus();
  return core::FieldInvalid(flag,
                            absl::StrCat(value, "; must not be negative"));
}

}  // namespace

absl::Status CheckLimits(const Limits& limits) {
  absl::Status status =
      CheckMessage("--max-request-bytes", limits.max_request_bytes);
  if (status.ok()) {
    status = CheckMessage("--max-response-bytes", limits.max_response_bytes);
  }
  if (status.ok() && limits.in_flight_bytes != 0 &&
      limits.in_flight_bytes < limits.max_request_bytes) {
    status = core::FieldInvalid(
        "--in-flight-bytes",
        absl::StrCat(limits.in_flight_bytes,
                     "; must hold a request of --max-request-bytes, ",
                     limits.max_request_bytes));
  }
  if (status.ok()) {
    status = CheckNotNegative("--max-waiting", limits.max_waiting);
  }
  if (status.ok()) status = CheckNotNegative("--threads", limits.threads);
  if (status.ok() && limits.default_deadline <= absl::ZeroDuration()) {
    status = core::FieldInvalid(
        "--default-deadline",
        absl::StrCat(absl::FormatDuration(limits.default_deadline),
                     "; must be positive"));
  }
  return status;
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
