#include "client/cli/progress.h"

#include <unistd.h>

#include <cstdint>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "client/cli/print.h"

namespace posenc::cli {
namespace {

// Work shorter than kLong shows nothing. The line is redrawn at most every
// kRefresh.
constexpr std::chrono::milliseconds kLong(700);
constexpr std::chrono::milliseconds kRefresh(100);

}  // namespace

Progress::~Progress() {
  if (drawn_ != Clock::time_point()) std::fprintf(stderr, "\r\033[K");
}

void Progress::Tell(const std::string& what) {
  const Clock::time_point now = Clock::now();
  if (now - start_ < kLong || now - drawn_ < kRefresh) return;
  if (isatty(STDERR_FILENO) == 0) return;
  // Carriage return and "erase to the end of the line".
  const std::chrono::duration<double> elapsed = now - start_;
  std::fprintf(stderr, "\r\033[K%s ... %.1f s", what.c_str(), elapsed.count());
  std::fflush(stderr);
  drawn_ = now;
}

CallOptions ShowProgress(Progress* progress, const std::string& what) {
  CallOptions options;
  options.on_progress = [progress, what](std::int64_t done,
                                         std::int64_t bytes) {
    progress->Tell(absl::StrCat(what, BytesText(static_cast<double>(done)),
                                " of ", BytesText(static_cast<double>(bytes))));
  };
  return options;
}

}  // namespace posenc::cli
