// The .safetensors format: named tensors in one file.
//
//   offset  bytes
//   0       8      n, little-endian
//   8       n      JSON, padded with spaces:
//                  {"__metadata__": {"format": "pt"},
//                   "q": {"dtype": "BF16", "shape": [1, 8, 32, 128],
//                         "data_offsets": [0, 65536]}, ...}
//   8 + n          the tensors' bytes, dense and little-endian; data_offsets
//                  count from here
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
  // The dtype's name in the file, "BF16". Tensors that pass through may have
  // any dtype. Calls send "U8" as INT8, because U8 tensors hold bytes of
  // llama.cpp's blocks.
  std::string dtype;
  std::vector<std::int64_t> shape;
  // The bytes in the file, or the bytes that replace them. If only the header
  // was read, the pointer is null, but the size is right.
  absl::Span<const char> bytes;
  std::uint64_t begin = 0;  // offset of the bytes, from the end of the header
};

struct Safetensors {
  std::vector<SafetensorsEntry> entries;  // in the order of their bytes
  std::map<std::string, std::string> metadata;

  // Returns nullptr if the file has no tensor of this name.
  SafetensorsEntry* Find(const std::string& name);
};

// Returns the entries as views into `bytes`. Nothing in the file is trusted:
// every rule of the format is checked. Errors are INVALID_ARGUMENT and do not
// name the file.
absl::StatusOr<Safetensors> ParseSafetensors(absl::Span<const char> bytes);

// Reads the header's length from the first 8 bytes. Returns an error unless the
// header fits into a file of `file_size` bytes.
absl::StatusOr<std::uint64_t> SafetensorsHeaderSize(
    absl::Span<const char> first_bytes, std::uint64_t file_size);

// Parses the JSON of a header, so that a few tensors of a large file can be
// read. `data_size` is the number of bytes after the header. Makes the same
// checks as ParseSafetensors().
absl::StatusOr<Safetensors> ParseSafetensorsHeader(absl::Span<const char> json,
                                                   std::uint64_t data_size);

// Parses a list of integers in [0, 2^63); nullopt for anything else.
absl::optional<std::vector<std::int64_t>> ExtentsOf(const nlohmann::json& list);

// Converts an entry to a tensor of the contract, and back, without a copy of
// the bytes. Returns INVALID_ARGUMENT for a dtype that only the format or only
// the contract has.
absl::StatusOr<TensorView> AsTensor(const SafetensorsEntry& entry);
absl::StatusOr<SafetensorsEntry> FromTensor(const std::string& name,
                                            const TensorView& tensor);

// Returns the header of a file with these entries: its length and its JSON.
// Uses only the sizes of the entries. Pads with spaces, so that the data starts
// at a multiple of 8.
std::string SafetensorsHeader(const Safetensors& file);

absl::Status WriteSafetensors(const std::string& path, const Safetensors& file);

}  // namespace posenc::cli
