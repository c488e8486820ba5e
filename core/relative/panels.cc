#include "core/relative/panels.h"

#include <algorithm>

namespace posenc::core {

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
