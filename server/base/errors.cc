#include "server/base/errors.h"

#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "core/base/error.h"

namespace posenc::server {

std::string ToString(absl::uint128 value) {
  std::ostringstream out;
  out << value;
  return out.str();
}

absl::Status WithField(const absl::Status& status, absl::string_view field) {
  const auto details = core::GetErrorDetails(status);
  if (!details) return status;
  absl::string_view fact = status.message();
  absl::ConsumePrefix(&fact, absl::StrCat(details->field, ": "));
  return core::MakeError(status.code(), details->reason, field, fact,
                         details->metadata);
}

absl::Status CheckSize(absl::string_view field, absl::string_view what,
                       absl::uint128 bytes, std::int64_t limit,
                       absl::string_view remedy) {
  if (bytes <= static_cast<std::uint64_t>(limit)) return absl::OkStatus();
  const std::string size = ToString(bytes);
  return core::MakeError(
      absl::StatusCode::kResourceExhausted, core::ErrorReason::kMessageTooLarge,
      field,
      absl::StrCat(what, " of ", size, " bytes, over the limit of ", limit,
                   "; ", remedy),
      {{"sizeBytes", size}, {"limitBytes", absl::StrCat(limit)}});
}

absl::Status CheckRequest(std::size_t bytes, std::int64_t limit) {
  return CheckSize("", "request", bytes, limit,
                   "send less in one call, or raise --max-request-bytes");
}

absl::Status CheckResponse(absl::uint128 bytes, std::int64_t limit) {
  return CheckSize("", "response", bytes, limit,
                   "ask for less in one call, or raise --max-response-bytes");
}

absl::Status NeverFits(std::int64_t bytes) {
  return core::MakeError(
      absl::StatusCode::kResourceExhausted, core::ErrorReason::kMessageTooLarge,
      "",
      absl::StrCat("response of ", bytes,
                   " bytes, more than --in-flight-bytes holds beside its "
                   "request; ask for less in one call, or raise it"),
      {{"sizeBytes", absl::StrCat(bytes)}});
}

absl::Status OverBudget(absl::string_view fact) {
  return core::MakeError(
      absl::StatusCode::kResourceExhausted, core::ErrorReason::kOverloaded, "",
      absl::StrCat(fact, "; retry later"), {{"resource", "inFlightBytes"}});
}

absl::Status TooManyCalls() {
  return OverBudget("too many calls to answer in time");
}

absl::Status OutOfMemory() {
  return core::MakeError(
      absl::StatusCode::kResourceExhausted, core::ErrorReason::kOverloaded, "",
      "out of memory for this call; retry later, or send less in one call",
      {{"resource", "memory"}});
}

}  // namespace posenc::server
