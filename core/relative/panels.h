// Dot products of rows of float64 numbers.

#pragma once

#include <algorithm>
#include <cstdint>

namespace posenc::core {

// For products, rows of `width` channels are arranged in panels of 8 rows. A
// panel is [width, 8], so that 8 products can be computed side by side.
inline constexpr std::int64_t kPanelRows = 8;

// Returns the number of elements of n rows in panels; the last panel is padded.
constexpr std::int64_t PanelsSize(std::int64_t n, std::int64_t width) {
  return (n + kPanelRows - 1) / kPanelRows * kPanelRows * width;
}
// Returns the index in the panels of channel c of row j.
constexpr std::int64_t PanelIndex(std::int64_t j, std::int64_t c,
                                  std::int64_t width) {
  return (j / kPanelRows * width + c) * kPanelRows + j % kPanelRows;
}

// Returns the number of rows whose panels fit into one MiB, but at least the
// rows of one panel and at most 128 rows.
constexpr std::int64_t PanelBlock(std::int64_t width) {
  constexpr std::int64_t kMost = 128;
  const std::int64_t panels = (1 << 20) / (kPanelRows * width * 8);
  return std::clamp(panels * kPanelRows, kPanelRows, kMost);
}

// Arranges `rows`, [n, width], in panels. The padding is not written.
void ArrangePanels(const double* rows, std::int64_t n, std::int64_t width,
                   double* panels);

// Sets sums[j] to the sum over c of row[c] * (row j of the panels)[c]. Terms
// are added in the order of c, so the sums do not depend on how rows are split
// into panels.
void DotPanels(const double* row, const double* panels, std::int64_t width,
               std::int64_t n, double* sums);

}  // namespace posenc::core
