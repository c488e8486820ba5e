// The file of --ready-file, which shows that the server is ready.

#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"

namespace posenc::server {

// The destructor removes the file.
class ReadyFile {
 public:
  // If the path is empty, the functions do nothing.
  explicit ReadyFile(std::string path) : path_(std::move(path)) {}
  ~ReadyFile();
  ReadyFile(const ReadyFile&) = delete;
  ReadyFile& operator=(const ReadyFile&) = delete;

  // Returns INVALID_ARGUMENT, field "--ready-file", if a file cannot be made at
  // `path`, for example because its folder is missing. Checks this by creating
  // and removing another file in the same folder. An empty path is valid.
  static absl::Status Check(const std::string& path);

  // Writes one address per line. The file gets its name when it is complete, so
  // that readers see the whole file or no file. Returns INTERNAL if this fails.
  absl::Status Write(const std::vector<std::string>& addresses) const;

 private:
  const std::string path_;
};

}  // namespace posenc::server
