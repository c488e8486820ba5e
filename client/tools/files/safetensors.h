// The .safetensors format: named tensors in one file.
//
//   offset  bytes
//   0       8      n, little-endian
//   8       n      JSON, padded with spaces:
//                  {"__metadata__": {"format": "pt"},
//                   "q": {"dtype": "BF16", "shape": [1, 8, 32, 128],
//                         "data_offsets": [0, 65536]}, ...}
//   8 + n          the tensors' bytes, dense and little-endian, from which
//                  offsets count
//
// Tensors must cover the data exactly, without holes and overlaps. A reader
// must check this, because a file may be malicious.

#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "nlohmann/json.hpp"
#include "posenc/client.h"

namespace posenc::cli {

struct SafetensorsEntry {
  std::string name;
  // The file's name of the dtype, "BF16". Tensors that pass through may have
  // any dtype.
  std::string dtype;
  std::vector<std::int64_t> shape;
  // The file's bytes, or their replacement. If only a header was read, the data
  // is null and the size is right.
  absl::Span<const char> bytes;
  std::uint64_t begin = 0;  // in the file, after its header
};

struct Safetensors {
  std::vector<SafetensorsEntry> entries;  // in the order of their bytes
  std::map<std::string, std::string> metadata;

  // nullptr if the file has no tensor of this name.
  SafetensorsEntry* Find(const std::string& name);
};

// Returns the entries as views into `bytes`. Nothing in the file is trusted:
// every rule of the format is checked. INVALID_ARGUMENT does not name the file.
absl::StatusOr<Safetensors> ParseSafetensors(absl::Span<const char> bytes);

// Reads the header's length from the first 8 bytes; an error unless it fits
// into a file of `file_size` bytes.
absl::StatusOr<std::uint64_t> SafetensorsHeaderSize(
    absl::Span<const char> first_bytes, std::uint64_t file_size);

// Parses a header's JSON, for a file with `data_size` bytes after it, to read a
// few tensors of a large file. Makes all checks of ParseSafetensors.
absl::StatusOr<Safetensors> ParseSafetensorsHeader(absl::Span<const char> json,
                                                   std::uint64_t data_size);

// Parses a list of integers in [0, 2^63); nullopt for anything else.
absl::optional<std::vector<std::int64_t>> ExtentsOf(const nlohmann::json& list);

// Converts an entry to a tensor of the contract, and back, without a copy of
// the bytes. INVALID_ARGUMENT for a dtype that only one of the two has.
absl::StatusOr<TensorView> AsTensor(const SafetensorsEntry& entry);
absl::StatusOr<SafetensorsEntry> FromTensor(const std::string& name,
                                            const TensorView& tensor);

// Returns length and JSON of a file with these entries; uses only the sizes of
// their bytes. Pads with spaces, so that the data starts at a multiple of 8.
std::string SafetensorsHeader(const Safetensors& file);

absl::Status WriteSafetensors(const std::string& path, const Safetensors& file);

}  // namespace posenc::cli
