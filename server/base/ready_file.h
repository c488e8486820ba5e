// The file of --ready-file, which says that the server serves.

#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"

namespace posenc::server {

// Removes the file when it is destroyed, or when Remove() is called.
class ReadyFile {
 public:
  // An empty path: no file.
  explicit ReadyFile(std::string path) : path_(std::move(path)) {}
  ~ReadyFile() { Remove(); }
  ReadyFile(const ReadyFile&) = delete;
  ReadyFile& operator=(const ReadyFile&) = delete;

  // Returns INVALID_ARGUMENT, field "--ready-file", if a file cannot be made at
  // `path`: its folder is missing or not writable. Makes a file beside it and
  // removes it again. An empty path is valid.
  static absl::Status Check(const std::string& path);

  // Writes one address a line, first under another name, so that readers see
  // the whole file or none. INTERNAL if the file cannot be written.
  absl::Status Write(const std::vector<std::string>& addresses) const;

  void Remove() const;

 private:
  const std::string path_;
};

}  // namespace posenc::server
