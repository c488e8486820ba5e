#include "core/rotation/scale_channels.h"

#include <algorithm>
#include <cstring>

#include "core/simd/dispatch.h"

namespace posenc::core {
namespace {

// The number of elements that are converted at a time, on the stack.
constexpr std::size_t kBlock = 256;

}  // namespace

void ScaleChannels(const HeadRotation& rotation, const std::byte* src,
                   std::byte* dst, double scale) {
  const auto n = static_cast<std::size_t>(rotation.pass_width);
  if (rotation.dtype_index == simd::kF64) {
    for (std::size_t i = 0; i < n; ++i) {
      double x;
      std::memcpy(&x, src + i * sizeof(x), sizeof(x));
      x *= scale;
      std::memcpy(dst + i * sizeof(x), &x, sizeof(x));
    }
    return;
  }
  const auto factor = static_cast<float>(scale);
  const simd::KernelTable& kernels = simd::ActiveKernels();
  float wide[kBlock];
  for (std::size_t i = 0; i < n; i += kBlock) {
    const std::size_t count = std::min(kBlock, n - i);
    const std::size_t offset = i * rotation.element;
    kernels.widen[rotation.dtype_index](src + offset, wide, count);
    for (std::size_t j = 0; j < count; ++j) wide[j] *= factor;
    kernels.narrow[rotation.dtype_index](wide, dst + offset, count);
  }
}

}  // namespace posenc::core
