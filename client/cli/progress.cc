#include "client/cli/progress.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cli/print.h"

namespace posenc::cli {
namespace {

// Work that is shorter than kLong shows nothing; then the line is redrawn every
// kRefresh.
constexpr std::chrono::milliseconds kLong(700);
constexpr std::chrono::milliseconds kRefresh(100);

}  // namespace

Progress::Progress(std::string what) : what_(std::move(what)) {
  if (isatty(STDERR_FILENO)) thread_ = std::thread([this] { Run(); });
}

Progress::~Progress() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    done_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void Progress::Set(std::string what) {
  const std::lock_guard<std::mutex> lock(mutex_);
  what_ = std::move(what);
}

void Progress::Run() {
  const auto start = std::chrono::steady_clock::now();
  std::unique_lock<std::mutex> lock(mutex_);
  const auto is_done = [this] { return done_; };
  if (changed_.wait_for(lock, kLong, is_done)) return;
  do {
    const std::chrono::duration<double> elapsed =
        std::chrono::steady_clock::now() - start;
    // Carriage return and "erase to the end of the line".
    std::fprintf(stderr, "\r\033[K%s ... %.1f s", what_.c_str(),
                 elapsed.count());
    std::fflush(stderr);
  } while (!changed_.wait_for(lock, kRefresh, is_done));
  std::fprintf(stderr, "\r\033[K");
}

CallOptions ShowProgress(Progress* progress, const std::string& what) {
  CallOptions options;
  options.on_progress = [progress, what](std::int64_t done,
                                         std::int64_t bytes) {
    progress->Set(absl::StrCat(what, BytesText(static_cast<double>(done)),
                               " of ", BytesText(static_cast<double>(bytes))));
  };
  return options;
}

}  // namespace posenc::cli
