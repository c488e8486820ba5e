#include "client/tools/plot/heat_map.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "client/tools/plot/axis.h"
#include "client/tools/plot/colors.h"

namespace posenc::plot {
namespace {

// The gap between two matrices, in pixels. The ticks of the second matrix fit
// into the gap.
constexpr double kGap = 62;
// The width of the colour bar, its width with ticks and label, and the position
// of the label.
constexpr double kBar = 16, kBarRoom = 88;
constexpr double kBarLabel = 72;

std::vector<std::uint8_t> Levels(const HeatMap& map, const Matrix& matrix) {
  std::vector<std::uint8_t> levels(matrix.values.size());
  const double low = map.log ? std::log(map.low) : map.low;
  const double high = map.log ? std::log(map.high) : map.high;
  std::transform(matrix.values.begin(), matrix.values.end(), levels.begin(),
                 [&](double value) {
                   return Level(map.log ? std::log(value) : value, low, high);
                 });
  return levels;
}

// Makes a scale with each number at the middle of its column or row.
Scale Numbered(double first, int count, double from, double to) {
  return {false, first - 0.5, first + count - 0.5, from, to, true};
}

void AddMatrix(const HeatMap& map, const Matrix& matrix, bool first,
               Cells cells, Svg* svg) {
  cells.name = matrix.name;
  cells.rows = matrix.rows;
  cells.columns = matrix.columns;
  cells.levels = Levels(map, matrix);
  const double left = cells.at.x, top = cells.at.y;
  const double right = left + cells.width, bottom = top + cells.height;
  AddXTicks(Numbered(0, matrix.columns, left, right), bottom, top, false, svg);
  AddYTicks(Numbered(matrix.first_row, matrix.rows, top, bottom), left, right,
            false, svg);
  AddXLabel(map.column_label, (left + right) / 2, bottom, svg);
  if (first) AddYLabel(map.row_label, left, (top + bottom) / 2, svg);
  if (map.matrices.size() > 1) {
    svg->Add(Label{"name",
                   matrix.name,
                   {(left + right) / 2, top - 8},
                   Anchor::kMiddle,
                   kTextSize});
  }
  svg->Add(cells);
}

// Adds the colour bar, with the highest value on top.
void AddColors(const HeatMap& map, double left, double top, double bottom,
               Svg* svg) {
  Cells bar{map.color_label, 256,  1,           std::vector<std::uint8_t>(256),
            {left, top},     kBar, bottom - top};
  std::iota(bar.levels.rbegin(), bar.levels.rend(), std::uint8_t{0});
  svg->Add(bar);
  const Scale scale{map.log, map.low, map.high, bottom, top};
  for (const Tick& tick : Ticks(scale)) {
    const double y = scale.At(tick.value);
    svg->Add(Path{"tick", "", {{left + kBar, y}, {left + kBar + 4, y}}, kInk});
    svg->Add(Label{"tick-color",
                   tick.text,
                   {left + kBar + 7, y + 4},
                   Anchor::kStart,
                   kTickSize});
  }
  svg->Add(Label{"label",
                 map.color_label,
                 {left + kBarLabel, (top + bottom) / 2},
                 Anchor::kMiddle,
                 kTextSize,
                 true});
}

}  // namespace

std::string Draw(const HeatMap& map, int width, int height) {
  Svg svg(map.title, map.description, width, height);
  const double top = kTop + (map.matrices.size() > 1 ? 16 : 0);
  const double bottom = height - kBottom;
  const double count = static_cast<double>(map.matrices.size());
  double each =
      (width - kLeft - kRight - kBarRoom - (count - 1) * kGap) / count;
  double tall = bottom - top;
  if (map.square_cells) {
    const Matrix& matrix = map.matrices[0];
    const double cell = std::min(each / matrix.columns, tall / matrix.rows);
    each = cell * matrix.columns;
    tall = cell * matrix.rows;
  }
  double left = kLeft;
  for (std::size_t i = 0; i < map.matrices.size(); ++i) {
    Cells cells;
    cells.at = {left, top};
    cells.width = each;
    cells.height = tall;
    AddMatrix(map, map.matrices[i], i == 0, std::move(cells), &svg);
    left += each + kGap;
  }
  AddColors(map, left - kGap + 20, top, top + tall, &svg);
  return svg.File();
}

}  // namespace posenc::plot
