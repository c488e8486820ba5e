// The header of a .safetensors file on its own (safetensors.h has the format):
// for those who read a few tensors of a large file.

#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace posenc::cli {

// Where the tensors lie, counted from the first byte behind the header.
struct SafetensorsRange {
  std::string name;
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0;
  std::uint64_t size = 0;  // bytes
};
struct SafetensorsLayout {
  std::vector<SafetensorsRange> entries;  // in the order of their bytes
  std::map<std::string, std::string> metadata;
};

// The longest header that is read: the reference implementation's limit. No
// model has a longer one, and a crafted one must not fill the memory.
inline constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;

// The header's length, of its first 8 bytes; an error unless it fits into a
// file of `file_size` bytes.
absl::StatusOr<std::uint64_t> SafetensorsHeaderSize(
    absl::Span<const char> first_bytes, std::uint64_t file_size);

// A header's JSON, for a file with `data_size` bytes behind it: for those who
// need not read the whole file. Checks all that ParseSafetensors does.
absl::StatusOr<SafetensorsLayout> ParseSafetensorsHeader(
    absl::Span<const char> json, std::uint64_t data_size);

}  // namespace posenc::cli
