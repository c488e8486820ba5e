#include "server/rpc/call_spec.h"

#include <cstddef>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/error.h"
#include "posenc/wire/metadata.h"
#include "server/budget/errors.h"

namespace posenc::server {
namespace {

// Limit for the bytes of a peer's metadata in a CallRecord.
constexpr std::size_t kMostObserved = 128;

}  // namespace

bool IsOverload(const absl::Status& status) {
  const auto details = core::GetErrorDetails(status);
  return details && details->reason == core::ErrorReason::kOverloaded;
}

absl::Status AsTold(const CallSpec& spec, const absl::Status& status) {
  if (!spec.full_is_unavailable || !IsOverload(status)) return status;
  absl::Status told(absl::StatusCode::kUnavailable, status.message());
  status.ForEachPayload(
      [&told](absl::string_view type, const absl::Cord& payload) {
        told.SetPayload(type, payload);
      });
  return told;
}

absl::StatusOr<std::optional<std::int64_t>> AnnouncedBytes(
    const CallHeaders& headers, std::int64_t limit) {
  const std::optional<absl::string_view> text =
      headers.Find(wire::kMessageBytes);
  if (!text) return std::nullopt;
  std::uint64_t bytes = 0;
  if (!absl::SimpleAtoi(*text, &bytes)) {
    return core::FieldInvalid(
        wire::kMessageBytes,
        absl::StrCat("'", absl::CHexEscape(*text),
                     "'; must be a number, the bytes of the largest message"));
  }
  const absl::Status size = CheckRequest(bytes, limit);
  if (!size.ok()) return size;
  return static_cast<std::int64_t>(bytes);
}

CallRecord RecordOf(const CallHeaders& headers, const CallSpec& spec,
                    const absl::Status& status, absl::string_view reason) {
  const auto metadata = [&headers](absl::string_view key) {
    return headers.Find(key).value_or("").substr(0, kMostObserved);
  };
  CallRecord record;
  record.service = spec.service;
  record.method = spec.name;
  record.stream = spec.stream;
  record.code = static_cast<grpc::StatusCode>(status.raw_code());
  record.reason = reason;
  record.message = status.message();
  record.peer = headers.peer();
  record.caller = spec.caller;
  record.request_id = metadata("x-request-id");
  record.traceparent = metadata("traceparent");
  return record;
}

}  // namespace posenc::server
