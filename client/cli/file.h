// Whole files, read once and replaced at once.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace posenc::cli {

// Read rather than mapped: a file that shrinks meanwhile is then an error and
// no SIGBUS, and it may be replaced by the result.
class FileBytes {
 public:
  // "-" is standard input.
  static absl::StatusOr<FileBytes> Read(const std::string& path);

  absl::Span<const char> bytes() const { return {data_.get(), size_}; }

 private:
  std::unique_ptr<char[]> data_;
  std::size_t size_ = 0;
};

// Writes the parts, one after the other, beside `path` and then renames: `path`
// is either what it was or complete.
absl::Status WriteFile(const std::string& path,
                       const std::vector<absl::Span<const char>>& parts);

// A file that is written piece by piece, in any order, beside `path`, which it
// replaces once it is complete.
class OutputFile {
 public:
  static absl::StatusOr<OutputFile> Create(const std::string& path);
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;
  ~OutputFile();  // removes what was not committed

  absl::Status WriteAt(std::int64_t offset, absl::Span<const char> part);
  absl::Status Commit();

 private:
  OutputFile(std::string path, std::string temporary, int fd);

  std::string path_;
  std::string temporary_;
  int fd_;  // -1: committed, or moved away
};

bool HasExtension(const std::string& path, const std::string& extension);

}  // namespace posenc::cli
