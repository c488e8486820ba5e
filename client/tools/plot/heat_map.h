// Matrices as colours, one or two side by side, with a common scale.

#pragma once

#include <string>
#include <vector>

namespace posenc::plot {

// Values [rows, columns], row-major. Rows are numbered from first_row, columns
// from 0; ticks are at the middle of their column or row.
struct Matrix {
  std::string name;
  int rows = 0, columns = 0;
  double first_row = 0;
  std::vector<double> values;
};

struct HeatMap {
  std::string title, description;
  std::string row_label, column_label;  // of the axes
  std::vector<Matrix> matrices;         // not empty
  // The values of the first and the last colour, and the label of the scale. If
  // `log`, colours follow the logarithm, and values that are not positive are
  // shown as `low`.
  double low = 0, high = 1;
  bool log = false;
  std::string color_label;
  bool square_cells = false;
};

std::string Draw(const HeatMap& map, int width, int height);

}  // namespace posenc::plot
