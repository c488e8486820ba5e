#include "core/relative/elements.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "core/simd/dispatch.h"

namespace posenc::core {
namespace {

constexpr std::int64_t kBlock = 256;  // elements converted at a time

// Rounds to odd: truncates `value` to float32 and sets the lowest bit if the
// truncation changed the value. The lowest bit keeps the result away from ties
// between two 16-bit numbers. So if the result is rounded to a format with at
// least two bits less, it becomes the number to which `value` itself would be
// rounded:
//
//   value         1.0000000 1 00..01   just above a tie of bfloat16
//   to nearest    1.0000000 1 00..0    the tie itself, which rounds down: wrong
//   to odd        1.0000000 1 00..1    still above the tie, which rounds up
float RoundToOdd(double value) {
  const auto nearest = static_cast<float>(value);
  if (std::isnan(value) || nearest == value) return nearest;
  auto bits = std::bit_cast<std::uint32_t>(nearest);
  if (std::fabs(static_cast<double>(nearest)) > std::fabs(value)) --bits;
  return std::bit_cast<float>(bits | 1);
}

template <typename T>
void StoreAs(const double* values, std::int64_t n, void* out) {
  char* bytes = static_cast<char*>(out);
  for (std::int64_t i = 0; i < n; ++i) {
    const auto value = static_cast<T>(values[i]);
    std::memcpy(bytes + i * sizeof(T), &value, sizeof(T));
  }
}

}  // namespace

void LoadDoubles(const ConstTensorView& tensor, std::int64_t first,
                 std::int64_t n, double* values) {
  const std::int64_t size = static_cast<std::int64_t>(DtypeSize(tensor.dtype));
  const char* bytes = static_cast<const char*>(tensor.data) + first * size;
  if (tensor.dtype == Dtype::kFloat64) {
    std::memcpy(values, bytes, n * size);
    return;
  }
  float block[kBlock];
  std::uint16_t narrow[kBlock];
  for (std::int64_t at = 0; at < n; at += kBlock) {
    const std::int64_t count = std::min(kBlock, n - at);
    if (tensor.dtype == Dtype::kFloat32) {
      std::memcpy(block, bytes + at * size, count * size);
    } else {
      std::memcpy(narrow, bytes + at * size, count * size);
      const simd::KernelTable& kernels = simd::ActiveKernels();
      (tensor.dtype == Dtype::kFloat16
           ? kernels.widen_f16
           : kernels.widen_bf16)(narrow, block, count);
    }
    std::copy_n(block, count, values + at);
  }
}

void StoreDoubles(const double* values, std::int64_t n, Dtype dtype,
                  void* out) {
  switch (dtype) {
    case Dtype::kFloat64:
      std::memcpy(out, values, n * sizeof(double));
      return;
    case Dtype::kFloat32:
      return StoreAs<float>(values, n, out);
    case Dtype::kInt32:
      return StoreAs<std::int32_t>(values, n, out);
    case Dtype::kInt64:
      return StoreAs<std::int64_t>(values, n, out);
    case Dtype::kFloat16:
    case Dtype::kBfloat16:
      break;
    case Dtype::kFloat8E4m3fn:
    case Dtype::kFloat8E5m2:
    case Dtype::kInt8:
      return;  // biases and scores are never of 8 bits
  }
  char* bytes = static_cast<char*>(out);
  float block[kBlock];
  std::uint16_t narrow[kBlock];
  const simd::KernelTable& kernels = simd::ActiveKernels();
  for (std::int64_t at = 0; at < n; at += kBlock) {
    const std::int64_t count = std::min(kBlock, n - at);
    std::transform(values + at, values + at + count, block, RoundToOdd);
    (dtype == Dtype::kFloat16 ? kernels.narrow_f16 : kernels.narrow_bf16)(
        block, narrow, count);
    std::memcpy(bytes + at * sizeof(narrow[0]), narrow,
                count * sizeof(narrow[0]));
  }
}

void ArrangePanels(const double* rows, std::int64_t n, std::int64_t width,
                   double* panels) {
  for (std::int64_t j = 0; j < n; ++j) {
    double* const lane = panels + PanelIndex(j, 0, width);
    for (std::int64_t c = 0; c < width; ++c) {
      lane[c * kPanelRows] = rows[j * width + c];
    }
  }
}

void DotPanels(const double* row, const double* panels, std::int64_t width,
               std::int64_t n, double* sums) {
  for (std::int64_t j = 0; j < n; j += kPanelRows) {
    // The compiler keeps the 8 sums in registers. Each sum adds its terms in
    // the order of c, so that the results do not depend on the width of the
    // CPU's vectors.
    double lanes[kPanelRows] = {};
    for (std::int64_t c = 0; c < width; ++c, panels += kPanelRows) {
      for (std::int64_t l = 0; l < kPanelRows; ++l) {
        lanes[l] += row[c] * panels[l];
      }
    }
    std::copy_n(lanes, std::min(kPanelRows, n - j), sums + j);
  }
}

}  // namespace posenc::core
