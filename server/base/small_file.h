// Reads and watches whole files: configuration, certificates and tokens.

#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"

namespace posenc::server {

// Returns the file's bytes. INVALID_ARGUMENT, field `flag`, if it cannot be
// read, is empty (unless `may_be_empty`), is a pipe without data, or has more
// than 1 MiB.
absl::StatusOr<std::string> ReadSmallFile(const std::string& flag,
                                          const std::string& path,
                                          bool may_be_empty = false);

// Calls `on_change` on its own thread, after the content of a file has changed
// or another file has replaced it. (Kubernetes updates secrets by replacing
// files.) Several files may be written one after another. So FileWatch first
// waits until a check finds no change since the previous check.
class FileWatch {
 public:
  // Notices all changes after its construction. So it must be created before
  // the files are read for the first time.
  explicit FileWatch(std::vector<std::string> paths);
  ~FileWatch();

  // From now on checks the files every `interval`, and calls `on_look` after
  // each check. Must be called at most one time.
  void Start(absl::Duration interval, std::function<void()> on_change,
             std::function<void()> on_look);

 private:
  // Values that change when a file changes. All are 0 if there is no file.
  using Stamp = std::tuple<dev_t, ino_t, off_t, std::int64_t>;

  std::vector<Stamp> Stamps() const;
  void Run();

  const std::vector<std::string> paths_;
  std::vector<Stamp> seen_;
  absl::Duration interval_;
  std::function<void()> on_change_, on_look_;
  absl::Notification stop_;
  std::thread thread_;
};

}  // namespace posenc::server
