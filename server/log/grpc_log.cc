#include "server/log/grpc_log.h"

#include <atomic>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "grpc/support/log.h"
#include "server/log/rate_limit.h"

namespace posenc::server {
namespace {

// More than gRPC has where peers can cause lines; beyond them places share one
// limit.
constexpr std::size_t kPlaces = 64;
constexpr double kAtOnce = 5;
constexpr double kPerSecond = 0.1;

class GrpcLog {
 public:
  explicit GrpcLog(std::shared_ptr<Log> log) : log_(std::move(log)) {}

  Log& log() const { return *log_; }

  RateLimit& LimitOf(const std::string& place) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const std::string key = limits_.size() < kPlaces || limits_.count(place) > 0
                                ? place
                                : std::string();
    return limits_.try_emplace(key, kAtOnce, kPerSecond).first->second;
  }

 private:
  const std::shared_ptr<Log> log_;
  std::mutex mutex_;
  std::map<std::string, RateLimit> limits_;
};

// gRPC's hook takes a function and no object.
std::atomic<GrpcLog*> target = nullptr;

LogLevel LevelOf(gpr_log_severity severity) {
  switch (severity) {
    case GPR_LOG_SEVERITY_DEBUG:
      return LogLevel::kDebug;
    case GPR_LOG_SEVERITY_INFO:
      return LogLevel::kInfo;
    case GPR_LOG_SEVERITY_ERROR:
      break;
  }
  return LogLevel::kError;
}

void WriteLine(gpr_log_func_args* line) {
  GrpcLog* const to = target.load();
  if (to == nullptr) return;
  absl::string_view file = line->file;
  file.remove_prefix(file.rfind('/') + 1);
  const std::string source = absl::StrCat(file, ":", line->line);
  // The process is about to abort, which writes no queue.
  const bool last = absl::StartsWith(line->message, "assertion failed");
  const std::optional<std::int64_t> suppressed =
      to->LimitOf(source).Allow(absl::Now());
  if (!suppressed.has_value() && !last) return;
  to->log().Write(LevelOf(line->severity), line->message,
                  {{"logger", absl::string_view("grpc")},
                   {"source", absl::string_view(source)},
                   {"suppressed", suppressed.value_or(0)}});
  if (last) to->log().Flush(absl::Seconds(1));
}

}  // namespace

void SendGrpcLogTo(std::shared_ptr<Log> log) {
  // Is never freed: gRPC's threads may log until the process ends.
  target = new GrpcLog(std::move(log));
  gpr_set_log_function(WriteLine);
}

void SilenceGrpcLog() {
  gpr_set_log_function([](gpr_log_func_args*) {});
}

}  // namespace posenc::server
