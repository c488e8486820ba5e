// Reads and watches whole files: configuration, certificates and tokens.

#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace posenc::server {

// Returns the file's bytes. INVALID_ARGUMENT, field `flag`, if it cannot be
// read, is empty (unless `may_be_empty`), is a pipe without data, or has more
// than 1 MiB.
absl::StatusOr<std::string> ReadSmallFile(const std::string& flag,
                                          const std::string& path,
                                          bool may_be_empty = false);

// Notices that the content of a file has changed, or that another file has
// replaced it. (Kubernetes updates secrets by replacing files.)
class FileChanges {
 public:
  // Notices all changes after its construction. So it must be created before
  // the files are read for the first time.
  explicit FileChanges(std::vector<std::string> paths)
      : paths_(std::move(paths)), seen_(Stamps()) {}

  // Returns true if files have changed since the last time that the result was
  // true, and none has changed since the previous call. The second condition is
  // for several files that are written one after another.
  bool Check();

 private:
  // Values that change when a file changes. All are 0 if there is no file.
  using Stamp = std::tuple<dev_t, ino_t, off_t, std::int64_t>;

  std::vector<Stamp> Stamps() const;

  const std::vector<std::string> paths_;
  std::vector<Stamp> seen_;
  bool changed_ = false;
};

}  // namespace posenc::server
