// Rows of keys that are integers: numbers of 8 bits with a scale that the
// caller keeps, or blocks that have their own scales. They rotate in float32.
// posenc.v1.Dtype and posenc.v1.BlockFormat describe the numbers.

#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace posenc::core {

// The numbers are those of posenc.v1.BlockFormat.
enum class BlockFormat { kNone = 0, kQ8_0 = 1, kQ4_0 = 2 };

// "q8_0", "q4_0", or "" without blocks.
absl::string_view BlockFormatName(BlockFormat format);

// Adjacent channels that are converted together. Without blocks, each channel
// is converted alone.
struct Block {
  std::int64_t channels;
  std::size_t bytes;
};
Block BlockOf(BlockFormat format);

// Converts n blocks to float32.
void Dequantise(BlockFormat format, const std::byte* src, std::size_t n,
                float* dst);

// Converts float32 to n blocks. Numbers without blocks that do not fit 8 bits
// become -128 or 127.
void Quantise(BlockFormat format, const float* src, std::size_t n,
              std::byte* dst);

}  // namespace posenc::core
