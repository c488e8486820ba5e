#include "server/log/log.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/base/error.h"
#include "nlohmann/json.hpp"

namespace posenc::server {
namespace {

constexpr const char* kSeverities[] = {"DEBUG", "INFO", "WARNING", "ERROR"};
constexpr const char* kLevelWords[] = {"debug", "info", "warning", "error"};

// Limits for the size of a message and of a field's text, before escaping.
constexpr std::size_t kMessageBytes = 1024;
constexpr std::size_t kFieldBytes = 256;

constexpr std::size_t kQueueBytes = std::size_t{1} << 20;
// A pipe that poll() reports as writable accepts a page without blocking.
constexpr std::size_t kPipePage = 4096;
constexpr int kPollMs = 100;
constexpr absl::Duration kLastFlush = absl::Seconds(1);

// Returns `text`, which may be any bytes, as a JSON string in ASCII. A terminal
// would interpret some characters that are not ASCII as commands. Bytes that
// are not UTF-8 become U+FFFD, and "..." replaces the text after `most` bytes.
std::string JsonString(absl::string_view text, std::size_t most) {
  std::string shown(text);
  if (text.size() > most) {
    // Cuts the text only between characters, which may have several bytes.
    while (most > 0 && (static_cast<unsigned char>(text[most]) & 0xC0) == 0x80)
      --most;
    shown.replace(most, std::string::npos, "...");
  }
  return nlohmann::json(std::move(shown))
      .dump(-1, ' ', /*ensure_ascii=*/true,
            nlohmann::json::error_handler_t::replace);
}

std::string ValueText(const LogField& field) {
  if (const auto* const text = std::get_if<absl::string_view>(&field.value)) {
    return JsonString(*text, kFieldBytes);
  }
  if (const auto* const whole = std::get_if<std::int64_t>(&field.value)) {
    return absl::StrCat(*whole);
  }
  return core::NumberText(std::get<double>(field.value));
}

}  // namespace

std::optional<LogLevel> ParseLogLevel(absl::string_view word) {
  const auto* const found =
      std::find(std::begin(kLevelWords), std::end(kLevelWords), word);
  if (found == std::end(kLevelWords)) return std::nullopt;
  return static_cast<LogLevel>(found - std::begin(kLevelWords));
}

std::optional<LogFormat> ParseLogFormat(absl::string_view word) {
  if (word == "json") return LogFormat::kJson;
  if (word == "text") return LogFormat::kText;
  return std::nullopt;
}

std::string FormatLogLine(LogFormat format, absl::Time time, LogLevel level,
                          absl::string_view message,
                          absl::Span<const LogField> fields) {
  const std::string stamp =
      absl::FormatTime("%Y-%m-%dT%H:%M:%E6SZ", time, absl::UTCTimeZone());
  const char* const severity = kSeverities[static_cast<int>(level)];
  const bool json = format == LogFormat::kJson;
  std::string line =
      json ? absl::StrCat("{\"time\":\"", stamp, "\",\"severity\":\"", severity,
                          "\",\"msg\":")
           : absl::StrCat(stamp, " ", severity, " ");
  line += JsonString(message, kMessageBytes);
  for (const LogField& field : fields) {
    absl::StrAppend(&line, json ? ",\"" : " ", field.name, json ? "\":" : "=",
                    ValueText(field));
  }
  line += json ? "}\n" : "\n";
  return line;
}

struct Log::Shared {
  Shared(int descriptor, LogLevel least, LogFormat lines)
      : fd(descriptor), format(lines), level(least) {}

  void Run();
  void WriteBatch(const std::string& batch);
  bool WriteAll(absl::string_view piece);
  bool AwaitWritable() const;
  void TellDropped();

  const int fd;
  const LogFormat format;
  std::atomic<LogLevel> level;
  // Numbers of dropped lines since the last report, and since the start.
  std::atomic<std::int64_t> dropped = 0, all_dropped = 0;

  std::mutex mutex;
  std::condition_variable changed;
  std::string queue;     // whole lines
  bool writing = false;  // the thread holds lines from the queue
  std::atomic<bool> stopping = false;
  bool ended = false;

  // True if the last written line is incomplete. Only the log's thread uses it.
  bool torn = false;
};

void Log::Shared::Run() {
  std::unique_lock<std::mutex> lock(mutex);
  while (true) {
    changed.wait(lock, [this] { return stopping || !queue.empty(); });
    if (queue.empty()) break;
    std::string batch;
    batch.swap(queue);
    writing = true;
    lock.unlock();
    WriteBatch(batch);
    lock.lock();
    writing = false;
    changed.notify_all();
  }
  ended = true;
  changed.notify_all();
}

// Writes as many whole lines at a time as fit into a page of a pipe.
void Log::Shared::WriteBatch(const std::string& batch) {
  absl::string_view rest = batch;
  while (!rest.empty()) {
    std::size_t end = rest.substr(0, kPipePage).rfind('\n');
    if (end == absl::string_view::npos) end = rest.find('\n');
    const absl::string_view lines = rest.substr(0, end + 1);
    rest.remove_prefix(lines.size());
    if (WriteAll(lines)) {
      TellDropped();
    } else {
      const auto lost = std::count(lines.begin(), lines.end(), '\n');
      dropped += lost;
      all_dropped += lost;
    }
  }
}

bool Log::Shared::WriteAll(absl::string_view lines) {
  if (torn && AwaitWritable() && write(fd, "\n", 1) == 1) torn = false;
  if (torn) return false;
  while (!lines.empty()) {
    if (!AwaitWritable()) return false;
    const ssize_t written =
        write(fd, lines.data(), std::min(lines.size(), kPipePage));
    if (written > 0) {
      torn = lines[written - 1] != '\n';
      lines.remove_prefix(written);
    } else if (errno != EINTR && errno != EAGAIN) {
      return false;
    }
  }
  return true;
}

// Waits until the descriptor may be written to, without a time limit. Returns
// false if the log ends first.
bool Log::Shared::AwaitWritable() const {
  while (true) {
    const bool last = stopping;
    pollfd poller = {fd, POLLOUT, 0};
    if (poll(&poller, 1, last ? 0 : kPollMs) > 0) return true;
    if (last) return false;
  }
}

void Log::Shared::TellDropped() {
  const std::int64_t number = dropped.exchange(0);
  if (number == 0) return;
  const LogField field = {"dropped", number};
  if (!WriteAll(FormatLogLine(format, absl::Now(), LogLevel::kWarning,
                              "lines of the log were dropped", {&field, 1}))) {
    dropped += number;
  }
}

Log::Log(int fd, LogLevel level, LogFormat format)
    : shared_(std::make_shared<Shared>(fd, level, format)) {
  std::thread([shared = shared_] { shared->Run(); }).detach();
}

Log::~Log() {
  Flush(kLastFlush);
  std::unique_lock<std::mutex> lock(shared_->mutex);
  shared_->stopping = true;
  shared_->changed.notify_all();
  // Waits for the thread's end, because later the descriptor's number may
  // belong to another file. The wait is limited, because the thread may hang in
  // a write.
  shared_->changed.wait_for(lock, absl::ToChronoMicroseconds(kLastFlush),
                            [this] { return shared_->ended; });
}

void Log::Write(LogLevel level, absl::string_view message,
                absl::Span<const LogField> fields) {
  if (!Writes(level)) return;
  const std::string line =
      FormatLogLine(shared_->format, absl::Now(), level, message, fields);
  {
    const std::lock_guard<std::mutex> lock(shared_->mutex);
    if (shared_->queue.size() + line.size() <= kQueueBytes) {
      shared_->queue += line;
    } else {
      ++shared_->dropped;
      ++shared_->all_dropped;
    }
  }
  shared_->changed.notify_all();
}

std::int64_t Log::dropped() const { return shared_->all_dropped.load(); }

bool Log::Writes(LogLevel level) const { return level >= shared_->level; }

void Log::set_level(LogLevel level) { shared_->level = level; }

bool Log::Flush(absl::Duration patience) {
  std::unique_lock<std::mutex> lock(shared_->mutex);
  return shared_->changed.wait_for(
      lock, absl::ToChronoMicroseconds(patience),
      [this] { return shared_->queue.empty() && !shared_->writing; });
}

}  // namespace posenc::server
