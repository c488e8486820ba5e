// Rows of quantised keys: 8-bit integers whose scale the caller keeps, or
// blocks that contain their scales. The rows rotate in float32. posenc.v1.Dtype
// and posenc.v1.BlockFormat describe the numbers.

#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace posenc::core {

// Each value has the same number as in posenc.v1.BlockFormat.
enum class BlockFormat { kNone = 0, kQ8_0 = 1, kQ4_0 = 2 };

// Returns "q8_0", "q4_0", or "" for kNone.
absl::string_view BlockFormatName(BlockFormat format);

// Adjacent channels that are converted together. For kNone, this is one
// channel.
struct Block {
  std::int64_t channels;
  std::size_t bytes;
};
Block BlockOf(BlockFormat format);

// Converts n blocks to float32.
void Dequantise(BlockFormat format, const std::byte* src, std::size_t n,
                float* dst);

// Converts float32 to n blocks. For kNone, numbers that do not fit in 8 bits
// become -128 or 127.
void Quantise(BlockFormat format, const float* src, std::size_t n,
              std::byte* dst);

}  // namespace posenc::core
