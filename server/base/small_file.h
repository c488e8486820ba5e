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

// Calls back, on its own thread, after any of the files has changed: in
// content, or because another file took its place (Kubernetes updates secrets
// in this way). It calls when two checks in a row find the same files,
// because several files are written one after another.
class FileWatch {
 public:
  // Create the watch before the files are read for the first time: it notices
  // changes from here on.
  explicit FileWatch(std::vector<std::string> paths);
  ~FileWatch();

  // Checks the files every `interval`, then calls `on_look`. Call it once.
  void Start(absl::Duration interval, std::function<void()> on_change,
             std::function<void()> on_look);

 private:
  // Values that change when a file does. All are 0 if there is no file.
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
