// A picture as marks on a plane, which svg.h writes. Lengths are pixels, x to
// the right and y down; what comes later lies on top. The ground is white.

#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace posenc::plot {

// 0xRRGGBB.
using Color = std::uint32_t;

struct Point {
  double x = 0, y = 0;
};

// A line through the points, in their order. `dash` is lengths of dashes and
// gaps in turn; empty: solid. `role` is its class in SVG ("curve", "grid"), and
// `name` what a reader hears.
struct Path {
  std::string role;
  std::string name;
  std::vector<Point> points;
  Color color = 0;
  double width = 1;
  std::vector<double> dash;
};

enum class Anchor { kStart, kMiddle, kEnd };

// One line of text whose baseline begins, is centred or ends at a point.
struct Label {
  std::string role;
  std::string text;
  Point at;
  Anchor anchor = Anchor::kStart;
  double size = 13;
  bool upward = false;  // turned by 90 degrees, to be read from below
};

// Cells of a heat map, scaled into a rectangle. `levels` has rows * columns
// indices into Cividis(), the first row on top. If some are `masked`, level 0
// is a cell without a value.
struct Cells {
  std::string name;
  int rows = 0, columns = 0;
  std::vector<std::uint8_t> levels;
  Point at;
  double width = 0, height = 0;
  bool masked = false;
};

using Mark = std::variant<Path, Label, Cells>;

struct Scene {
  std::string title, description;
  int width = 0, height = 0;
  std::vector<Mark> marks;
};

// Upper bound on the width of a text, for legends and margins: fonts differ,
// and hardly any has letters wider than this on average.
inline double TextWidth(const std::string& text, double size) {
  return 0.6 * size * static_cast<double>(text.size());
}

}  // namespace posenc::plot
