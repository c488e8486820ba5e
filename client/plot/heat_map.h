// Matrices as colours, one or two side by side, with the scale that both share.

#pragma once

#include <string>
#include <vector>

namespace posenc::plot {

// Values [rows, columns], row-major. The first column has the number
// first_column, and the first row first_row; ticks stand at the middle of their
// column or row. Values that are not finite are masked.
struct Matrix {
  std::string name;
  int rows = 0, columns = 0;
  double first_row = 0, first_column = 0;
  std::vector<double> values;
};

struct HeatMap {
  std::string title, description;
  std::string row_label, column_label;  // of the axes
  std::vector<Matrix> matrices;         // not empty
  // What the colours mean: their ends, and the label of their scale. If `log`,
  // values are shown by their logarithm, and what is not positive as `low`.
  double low = 0, high = 1;
  bool log = false;
  std::string color_label;
  // Cells are squares, if the picture has room.
  bool square_cells = false;
};

// As SVG.
std::string Draw(const HeatMap& map, int width, int height);

}  // namespace posenc::plot
