// Writes the server's log to a descriptor that may be full, slow or closed.

#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <variant>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

namespace posenc::server {

enum class LogLevel { kDebug, kInfo, kWarning, kError };
enum class LogFormat { kJson, kText };

// These functions parse the words of --log-level and --log-format.
std::optional<LogLevel> ParseLogLevel(absl::string_view word);
std::optional<LogFormat> ParseLogFormat(absl::string_view word);

// A named value. Texts are always shortened and escaped.
struct LogField {
  absl::string_view name;  // from our code: letters, digits, '_', '.'
  std::variant<absl::string_view, std::int64_t, double> value;
};

// Returns one line of the log, including the newline:
//   {"time":"2026-11-22T09:03:18.123456Z","severity":"INFO","msg":"...",...}
//   2026-11-22T09:03:18.123456Z INFO "..." name=value
std::string FormatLogLine(LogFormat format, absl::Time time, LogLevel level,
                          absl::string_view message,
                          absl::Span<const LogField> fields);

// Thread-safe. Only the log's own thread waits for the descriptor; callers
// never wait. The queue holds 1 MiB. Further lines are dropped and counted.
// When writing works again, one line reports their number. Errors of the
// descriptor (EPIPE, ENOSPC) do not end the process if SIGPIPE is ignored.
class Log {
 public:
  // Does not own `fd`.
  Log(int fd, LogLevel level, LogFormat format);
  // Flushes for at most a second, and waits at most one more second for a write
  // that has begun.
  ~Log();
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

  void Write(LogLevel level, absl::string_view message,
             absl::Span<const LogField> fields = {});
  void Write(LogLevel level, absl::string_view message,
             std::initializer_list<LogField> fields) {
    Write(level, message,
          absl::Span<const LogField>(fields.begin(), fields.size()));
  }

  // Returns whether a line of that level would be written.
  bool Writes(LogLevel level) const;
  void set_level(LogLevel level);

  // Returns the number of lines that were dropped since the start.
  std::int64_t dropped() const;

  // Waits until all lines are written or dropped. Returns false if this takes
  // longer than `patience`.
  bool Flush(absl::Duration patience);

 private:
  // The log's thread also owns this object, because the thread may hang in a
  // write for longer than the Log exists.
  struct Shared;
  const std::shared_ptr<Shared> shared_;
};

}  // namespace posenc::server
