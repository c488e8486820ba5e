#include "core/rotation/scale_channels.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "core/simd/dispatch.h"

namespace posenc::core {
namespace {

// The number of elements that are converted at a time, on the stack.
constexpr std::size_t kBlock = 256;

using Floats = std::array<float, kBlock>;

// Scales n elements of T, a narrow format, in float32.
template <class T>
void ScaleNarrow(void (*widen)(const T*, float*, std::size_t),
                 void (*narrow)(const float*, T*, std::size_t),
                 const std::byte* src, std::byte* dst, std::size_t n,
                 float factor) {
  Floats wide;
  std::array<T, kBlock> bits;  // aligned, as T must be
  for (std::size_t i = 0; i < n; i += kBlock) {
    const std::size_t count = std::min(kBlock, n - i);
    std::memcpy(bits.data(), src + i * sizeof(T), count * sizeof(T));
    widen(bits.data(), wide.data(), count);
    for (std::size_t j = 0; j < count; ++j) wide[j] *= factor;
    narrow(wide.data(), bits.data(), count);
    std::memcpy(dst + i * sizeof(T), bits.data(), count * sizeof(T));
  }
}

// Scales n elements of T, float or double.
template <class T>
void ScaleWide(const std::byte* src, std::byte* dst, std::size_t n, T factor) {
  for (std::size_t i = 0; i < n; ++i) {
    T x;
    std::memcpy(&x, src + i * sizeof(x), sizeof(x));
    x *= factor;
    std::memcpy(dst + i * sizeof(x), &x, sizeof(x));
  }
}

}  // namespace

void ScaleChannels(const HeadRotation& rotation, const std::byte* src,
                   std::byte* dst, double scale) {
  const auto n = static_cast<std::size_t>(rotation.pass_width);
  const auto factor = static_cast<float>(scale);
  const simd::KernelTable& kernels = simd::ActiveKernels();
  switch (rotation.dtype_index) {
    case simd::kF64:
      return ScaleWide<double>(src, dst, n, scale);
    case simd::kF16:
      return ScaleNarrow(kernels.widen_f16, kernels.narrow_f16, src, dst, n,
                         factor);
    case simd::kBf16:
      return ScaleNarrow(kernels.widen_bf16, kernels.narrow_bf16, src, dst, n,
                         factor);
    case simd::kE4m3:
      return ScaleNarrow(kernels.widen_e4m3, kernels.narrow_e4m3, src, dst, n,
                         factor);
    case simd::kE4m3Finite:
      return ScaleNarrow(kernels.widen_e4m3, kernels.narrow_e4m3_finite, src,
                         dst, n, factor);
    case simd::kE5m2:
      return ScaleNarrow(kernels.widen_e5m2, kernels.narrow_e5m2, src, dst, n,
                         factor);
    case simd::kE5m2Finite:
      return ScaleNarrow(kernels.widen_e5m2, kernels.narrow_e5m2_finite, src,
                         dst, n, factor);
    default:
      return ScaleWide<float>(src, dst, n, factor);
  }
}

}  // namespace posenc::core
