// Files of the configuration, certificates and tokens: read whole, and watched.

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

// INVALID_ARGUMENT, field `flag`, if the file cannot be read, is empty unless
// it may be, is a pipe in which there is nothing, or has more than 1 MiB.
absl::StatusOr<std::string> ReadSmallFile(const std::string& flag,
                                          const std::string& path,
                                          bool may_be_empty = false);

// Calls back, in a thread of its own, after any of the files has changed: in
// content, or by another file in its place, as Kubernetes updates secrets. It
// waits until they have not changed from one look to the next, because whoever
// writes several files writes one after the other.
class FileWatch {
 public:
  // To be made before the files are read for the first time: changes from here
  // on count.
  explicit FileWatch(std::vector<std::string> paths);
  ~FileWatch();

  // Begins to look, every `interval`, and calls `on_look` each time. Once.
  void Start(absl::Duration interval, std::function<void()> on_change,
             std::function<void()> on_look);

 private:
  // What changes when a file does. All 0 if there is none.
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
