#include "core/rotation/quantised_rows.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "core/simd/dispatch.h"

// Loops have a fixed number of steps, and use arrays on the stack, so that
// compilers vectorise them.
namespace posenc::core {
namespace {

constexpr std::size_t kChannels = 32;  // channels of a block
constexpr std::size_t kHalf = kChannels / 2;

// The number of scales that are converted at a time.
constexpr std::size_t kScales = 8;

constexpr std::int32_t kMagnitude = 0x7fffffff;  // all bits but the sign
constexpr std::int32_t kInfinity = 0x7f800000;
constexpr std::uint16_t kNanScale = 0x7e00;

// Used for int8 numbers without blocks. Adding kRound rounds a float to an
// integer, to nearest even; the last bits of the sum are the bits of this
// integer.
constexpr float kRound = 0x1.8p23f;
constexpr auto kZero = std::bit_cast<std::int32_t>(kRound);

void WidenNumbers(const std::byte* src, float* dst) {
  std::int8_t numbers[kChannels];
  std::memcpy(numbers, src, sizeof(numbers));
  for (std::size_t i = 0; i < kChannels; ++i) dst[i] = numbers[i];
}

void NarrowNumbers(const float* src, std::byte* dst) {
  std::int32_t bits[kChannels];
  for (std::size_t i = 0; i < kChannels; ++i) {
    bits[i] = std::bit_cast<std::int32_t>(src[i] + kRound);
  }
  // The bits of a larger sum are a larger integer, and the bits of a negative
  // sum are a negative integer. So infinity and NaN become -128 or 127, too.
  std::uint8_t numbers[kChannels];
  for (std::size_t i = 0; i < kChannels; ++i) {
    const std::int32_t above = std::max(bits[i], kZero - 128);
    numbers[i] = static_cast<std::uint8_t>(std::min(above, kZero + 127));
  }
  std::memcpy(dst, numbers, sizeof(numbers));
}

// Calls convert(src, dst) for each group of 32 numbers. If fewer than 32 of the
// n numbers are left, converts them in padded copies.
template <typename From, typename To>
void ForEach32(const From* src, std::size_t n, To* dst,
               void (*convert)(const From*, To*)) {
  std::size_t i = 0;
  for (; i + kChannels <= n; i += kChannels) convert(src + i, dst + i);
  if (i == n) return;
  From from[kChannels] = {};
  To to[kChannels];
  std::copy(src + i, src + n, from);
  convert(from, to);
  std::copy_n(to, n - i, dst + i);
}

// Returns the bits of the largest magnitude. The bits are compared as integers:
// a larger magnitude has larger bits, and a NaN has the largest.
std::int32_t LargestMagnitude(const float* src) {
  std::int32_t bits[kChannels];
  std::memcpy(bits, src, sizeof(bits));
  std::int32_t largest = 0;
  for (const std::int32_t word : bits) {
    largest = std::max(largest, word & kMagnitude);
  }
  return largest;
}

// Returns 1 / d, or 0 if d is 0 or so small that 1 / d is infinite.
float Inverse(float d) {
  const float inverse = 1 / d;
  return std::isinf(inverse) ? 0 : inverse;
}

// Formats of blocks. A block has a scale, and then kQuantBytes bytes of quants.

struct Q8_0 {
  static constexpr std::size_t kQuantBytes = kChannels;

  static void Widen(const std::byte* src, float d, float* dst) {
    WidenNumbers(src, dst);
    for (std::size_t i = 0; i < kChannels; ++i) dst[i] *= d;
  }

  // Returns the scale.
  static float Narrow(const float* src, std::int32_t largest, std::byte* dst) {
    const float d = std::bit_cast<float>(largest) / 127;
    const float inverse = Inverse(d);
    std::int8_t quants[kChannels];
    for (std::size_t i = 0; i < kChannels; ++i) {
      const float x = src[i] * inverse;
      // Rounds halves away from zero. The added number is h, the largest float
      // below 0.5. If 0.5 were added instead, x = h would round up to 1.
      quants[i] = static_cast<std::int8_t>(
          static_cast<std::int32_t>(x + std::copysign(0x1.fffffep-2f, x)));
    }
    std::memcpy(dst, quants, sizeof(quants));
    return d;
  }
};

struct Q4_0 {
  static constexpr std::size_t kQuantBytes = kHalf;

  static void Widen(const std::byte* src, float d, float* dst) {
    std::uint8_t pairs[kHalf];
    std::memcpy(pairs, src, sizeof(pairs));
    for (std::size_t i = 0; i < kHalf; ++i) {
      dst[i] = static_cast<float>((pairs[i] & 15) - 8) * d;
    }
    for (std::size_t i = 0; i < kHalf; ++i) {
      dst[kHalf + i] = static_cast<float>((pairs[i] >> 4) - 8) * d;
    }
  }

  // Returns the scale.
  static float Narrow(const float* src, std::int32_t largest, std::byte* dst) {
    const float* const end = src + kChannels;
    const float* const first = std::find_if(src, end, [largest](float x) {
      return (std::bit_cast<std::int32_t>(x) & kMagnitude) == largest;
    });
    // If all channels are zeros of any sign, the scale is -0.
    const float d = (largest == 0 ? 0 : *first) / -8;
    const float inverse = Inverse(d);
    std::int32_t quants[kChannels];
    for (std::size_t i = 0; i < kChannels; ++i) {
      const float x = src[i] * inverse;
      quants[i] = std::min(15, static_cast<std::int32_t>(x + 8.5F));
    }
    std::uint8_t pairs[kHalf];
    for (std::size_t i = 0; i < kHalf; ++i) {
      pairs[i] = static_cast<std::uint8_t>(quants[i] | quants[kHalf + i] << 4);
    }
    std::memcpy(dst, pairs, sizeof(pairs));
    return d;
  }
};

template <typename Format>
constexpr std::size_t kBlockBytes = sizeof(std::uint16_t) + Format::kQuantBytes;

template <typename Format>
void WidenBlocks(const std::byte* src, std::size_t n, float* dst) {
  for (std::size_t i = 0; i < n; i += kScales) {
    const std::size_t count = std::min(kScales, n - i);
    std::uint16_t bits[kScales];
    float scales[kScales];
    for (std::size_t j = 0; j < count; ++j) {
      std::memcpy(&bits[j], src + j * kBlockBytes<Format>, sizeof(bits[j]));
    }
    simd::ActiveKernels().widen[simd::kF16](bits, scales, count);
    for (std::size_t j = 0; j < count; ++j) {
      Format::Widen(src + sizeof(bits[j]), scales[j], dst);
      src += kBlockBytes<Format>;
      dst += kChannels;
    }
  }
}

template <typename Format>
void NarrowBlocks(const float* src, std::size_t n, std::byte* dst) {
  for (std::size_t i = 0; i < n; i += kScales) {
    const std::size_t count = std::min(kScales, n - i);
    std::uint16_t bits[kScales];
    float scales[kScales];
    bool finite[kScales];
    for (std::size_t j = 0; j < count; ++j) {
      const float* const block = src + j * kChannels;
      std::byte* const quants = dst + j * kBlockBytes<Format> + sizeof(bits[j]);
      const std::int32_t largest = LargestMagnitude(block);
      finite[j] = largest < kInfinity;
      if (finite[j]) {
        scales[j] = Format::Narrow(block, largest, quants);
      } else {
        scales[j] = 0;
        std::memset(quants, 0, Format::kQuantBytes);
      }
    }
    simd::ActiveKernels().narrow[simd::kF16](scales, bits, count);
    for (std::size_t j = 0; j < count; ++j) {
      const std::uint16_t scale = finite[j] ? bits[j] : kNanScale;
      std::memcpy(dst, &scale, sizeof(scale));
      dst += kBlockBytes<Format>;
    }
    src += count * kChannels;
  }
}

}  // namespace

absl::string_view BlockFormatName(BlockFormat format) {
  return format == BlockFormat::kQ8_0   ? "q8_0"
         : format == BlockFormat::kQ4_0 ? "q4_0"
                                        : "";
}

Block BlockOf(BlockFormat format) {
  switch (format) {
    case BlockFormat::kQ8_0:
      return {kChannels, kBlockBytes<Q8_0>};
    case BlockFormat::kQ4_0:
      return {kChannels, kBlockBytes<Q4_0>};
    case BlockFormat::kNone:
      break;
  }
  return {1, 1};
}

void Dequantise(BlockFormat format, const std::byte* src, std::size_t n,
                float* dst) {
  switch (format) {
    case BlockFormat::kQ8_0:
      return WidenBlocks<Q8_0>(src, n, dst);
    case BlockFormat::kQ4_0:
      return WidenBlocks<Q4_0>(src, n, dst);
    case BlockFormat::kNone:
      return ForEach32(src, n, dst, WidenNumbers);
  }
}

void Quantise(BlockFormat format, const float* src, std::size_t n,
              std::byte* dst) {
  switch (format) {
    case BlockFormat::kQ8_0:
      return NarrowBlocks<Q8_0>(src, n, dst);
    case BlockFormat::kQ4_0:
      return NarrowBlocks<Q4_0>(src, n, dst);
    case BlockFormat::kNone:
      return ForEach32(src, n, dst, NarrowNumbers);
  }
}

}  // namespace posenc::core
