#include "server/log/grpc_log.h"

#include <atomic>
#include <cstddef>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "posenc/compat.h"
#include "server/log/rate_limit.h"

namespace posenc::server {
namespace {

// Number of sources (file and line) that have their own rate limit; all further
// sources share one limit. Peers can cause lines from fewer sources than this
// number.
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

// The hook takes a function without an object, so the log is global.
std::atomic<GrpcLog*> target = nullptr;

// LogLevel and the levels of compat::LogLine have the same order, from debug to
// error.
static_assert(static_cast<int>(LogLevel::kError) == compat::LogLine::kError);

void WriteLine(const compat::LogLine& line) {
  GrpcLog* const to = target.load();
  if (to == nullptr) return;
  const std::string source = absl::StrCat(line.file, ":", line.line);
  const std::optional<std::int64_t> suppressed =
      to->LimitOf(source).Allow(absl::Now());
  if (!suppressed.has_value() && !line.last) return;
  to->log().Write(static_cast<LogLevel>(line.level), line.text,
                  {{"logger", absl::string_view("grpc")},
                   {"source", absl::string_view(source)},
                   {"suppressed", suppressed.value_or(0)}});
  // gRPC aborts the process after this line. Without a flush, the queued lines
  // would be lost.
  if (line.last) to->log().Flush(absl::Seconds(1));
}

}  // namespace

void SendGrpcLogTo(std::shared_ptr<Log> log) {
  // The object is never freed, because gRPC's threads may log until the process
  // ends.
  target = new GrpcLog(std::move(log));
  compat::SetLog(WriteLine);
}

void SilenceGrpcLog() { compat::SetLog(nullptr); }

}  // namespace posenc::server
