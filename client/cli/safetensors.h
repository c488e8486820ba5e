// .safetensors: a 64-bit length, that much JSON, the tensors' bytes.

#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "posenc/client.h"

namespace posenc::cli {

struct SafetensorsEntry {
  std::string name;
  std::string dtype;  // as the file says: "BF16"; any, for what passes through
  std::vector<std::int64_t> shape;
  absl::Span<const char> bytes;
};

struct Safetensors {
  std::vector<SafetensorsEntry> entries;  // in the order of their bytes
  std::map<std::string, std::string> metadata;

  // nullptr where there is none.
  SafetensorsEntry* Find(const std::string& name);
};

// Views into `bytes`. Everything is checked: the bytes are covered by the
// tensors exactly, without overlap or hole, as the format demands.
absl::StatusOr<Safetensors> ParseSafetensors(absl::Span<const char> bytes);

// INVALID_ARGUMENT for dtypes that posenc.v1.Dtype does not have.
absl::StatusOr<TensorView> AsTensor(const SafetensorsEntry& entry);
absl::StatusOr<SafetensorsEntry> FromTensor(const std::string& name,
                                            const TensorView& tensor);

// Length and JSON, padded with spaces to a multiple of 8.
std::string SafetensorsHeader(const Safetensors& file);

absl::Status WriteSafetensors(const std::string& path, const Safetensors& file);

}  // namespace posenc::cli
