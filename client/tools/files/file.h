// Reads and writes whole files. An input is read once, into memory. An output
// is replaced atomically: other programs see the old file or the complete new
// file, even if this program is killed or the disk is full. A replaced file
// keeps its mode, and a symbolic link to it stays.

#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/types/span.h"

namespace posenc::cli {

// The bytes of a file. The file is read, not mapped. Access to a mapped file
// raises SIGBUS after the file has become shorter, and a result could not
// replace its own input.
class FileBytes {
 public:
  // Reads a file; "-" is standard input. Errors have exit code 3 and name the
  // path.
  static absl::StatusOr<FileBytes> Read(const std::string& path);
  // Reads like Read(), but refuses a file, a pipe or a device with more than
  // `most` bytes.
  static absl::StatusOr<FileBytes> ReadAtMost(std::size_t most,
                                              const std::string& path);

  absl::Span<const char> bytes() const { return {data_.get(), size_}; }

 private:
  std::unique_ptr<char[]> data_;
  std::size_t size_ = 0;
};

// Writes the parts, one after another, to a temporary file in the directory of
// `path`, and renames this file to `path`. Standard output ("-"), a device or a
// pipe (/dev/stdout) cannot be replaced and is written directly.
absl::Status WriteFile(const std::string& path,
                       const std::vector<absl::Span<const char>>& parts);

// Returns true for "-", standard input or output.
inline bool IsStandardStream(const std::string& path) { return path == "-"; }

// Returns true if the path ends in `extension`, ".npy" for example, in upper or
// lower case.
inline bool HasExtension(const std::string& path,
                         const std::string& extension) {
  return absl::EndsWithIgnoreCase(path, extension);
}

}  // namespace posenc::cli
