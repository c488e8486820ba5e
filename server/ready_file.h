// The file that says that the server serves: --ready-file.

#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"

namespace posenc::server {

// Removes the file when it goes, or when Remove() is called.
class ReadyFile {
 public:
  // An empty path: no file.
  explicit ReadyFile(std::string path) : path_(std::move(path)) {}
  ~ReadyFile() { Remove(); }
  ReadyFile(const ReadyFile&) = delete;
  ReadyFile& operator=(const ReadyFile&) = delete;

  // INVALID_ARGUMENT, field "--ready-file", if a file cannot be made at `path`:
  // its folder is missing or not writable. Makes one beside it, and removes it;
  // an empty path is right.
  static absl::Status Check(const std::string& path);

  // One address a line, under another name first, so that readers see the
  // whole file or none. INTERNAL if it cannot be written.
  absl::Status Write(const std::vector<std::string>& addresses) const;

  void Remove() const;

 private:
  const std::string path_;
};

}  // namespace posenc::server
