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

// Returns the file's bytes. Returns INVALID_ARGUMENT, field `flag`, if the file
// cannot be read, is larger than 1 MiB, is a pipe without data, or is empty
// while `may_be_empty` is false.
absl::StatusOr<std::string> ReadSmallFile(const std::string& flag,
                                          const std::string& path,
                                          bool may_be_empty = false);

// Notices that the content of a file has changed, or that another file has
// replaced it. (Kubernetes updates secrets by replacing files.)
class FileChanges {
 public:
  // Notices all changes after its construction. Create the object before the
  // files are read.
  explicit FileChanges(std::vector<std::string> paths)
      : paths_(std::move(paths)), seen_(Stamps()) {}

  // After files have changed, returns true once, at the first call that finds
  // no further change. So files that are written one by one count as one
  // change.
  bool Check();

 private:
  // Values that change when a file changes. All are 0 if the file does not
  // exist.
  using Stamp = std::tuple<dev_t, ino_t, off_t, std::int64_t>;

  std::vector<Stamp> Stamps() const;

  const std::vector<std::string> paths_;
  std::vector<Stamp> seen_;
  bool changed_ = false;
};

}  // namespace posenc::server
