#include "server/log/call_log.h"

#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "server/trace/traceparent.h"

namespace posenc::server {
namespace {

constexpr double kFailuresAtOnce = 100;
constexpr double kFailuresPerSecond = 10;

// Returns whether the server made the call fail, by an error or by overload.
bool IsServersFault(const CallRecord& record) {
  switch (record.code) {
    case grpc::StatusCode::UNKNOWN:
    case grpc::StatusCode::INTERNAL:
    case grpc::StatusCode::DATA_LOSS:
    case grpc::StatusCode::UNAVAILABLE:
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return true;
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
      // A message that is too large has the same code, but is the client's
      // fault.
      return absl::EndsWith(record.reason, "OVERLOADED");
    default:
      return false;
  }
}

}  // namespace

CallLog::CallLog(std::shared_ptr<Log> log, double fraction)
    : log_(std::move(log)),
      fraction_(fraction),
      failures_(kFailuresAtOnce, kFailuresPerSecond) {}

// Returns true if this call makes (number of calls x fraction) reach the next
// whole number. With a fraction of 1/n, this is every n-th call.
bool CallLog::Sampled() {
  const double fraction = fraction_;
  if (fraction <= 0) return false;
  const auto before = static_cast<double>(succeeded_.fetch_add(1));
  return std::floor((before + 1) * fraction) > std::floor(before * fraction);
}

void CallLog::Finished(const CallRecord& record) {
  LogLevel level = LogLevel::kInfo;
  std::int64_t suppressed = 0;
  if (record.code == grpc::StatusCode::OK) {
    if (!Sampled()) return;
  } else if (!IsServersFault(record)) {
    level = LogLevel::kDebug;
  } else {
    const std::optional<std::int64_t> allowed = failures_.Allow(absl::Now());
    if (!allowed.has_value()) return;
    suppressed = *allowed;
  }
  if (!log_->Writes(level)) return;
  const std::string code =
      absl::StatusCodeToString(static_cast<absl::StatusCode>(record.code));
  std::vector<LogField> fields = {
      {"rpc.service", record.service},
      {"rpc.method", record.method},
      {"grpc.code", absl::string_view(code)},
      {"duration", absl::ToDoubleSeconds(record.handling)},
      {"waited", absl::ToDoubleSeconds(record.waited)},
      {"computing", absl::ToDoubleSeconds(record.computing)},
      {"bytes_received", record.bytes_received},
      {"bytes_sent", record.bytes_sent},
      {"peer", record.peer}};
  const auto add = [&fields](absl::string_view name, absl::string_view value) {
    if (!value.empty()) fields.push_back({name, value});
  };
  add("reason", record.reason);
  add("error", record.message);
  add("caller", record.caller);
  add("request_id", record.request_id);
  add("trace_id", TraceIdText(record.traceparent));
  if (suppressed != 0) fields.push_back({"suppressed", suppressed});
  log_->Write(level, "call", fields);
}

}  // namespace posenc::server
