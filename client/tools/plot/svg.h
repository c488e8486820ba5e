// A picture as SVG 1.1, written mark by mark. Lengths are pixels; x grows to
// the right and y downward. Later marks cover earlier marks. The background is
// white.
//
// Points are numbers in the SVG text, so that tests and screen readers can read
// them. Heat maps are embedded PNGs, because an SVG element for each cell would
// take hundreds of megabytes.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "client/tools/plot/colors.h"

namespace posenc::plot {

struct Point {
  double x = 0, y = 0;
};

// A line through the points, in their order. `dash` has alternating lengths of
// dashes and gaps, "9 4"; empty: solid. `role` is the class of the line in SVG
// ("curve", "grid"); screen readers read `name`.
struct Path {
  std::string role;
  std::string name;
  std::vector<Point> points;
  Color color = 0;
  double width = 1;
  std::string dash;
};

enum class Anchor { kStart, kMiddle, kEnd };

// One line of text whose baseline begins, is centred or ends at a point.
struct Label {
  std::string role;
  std::string text;
  Point at;
  Anchor anchor = Anchor::kStart;
  double size = 13;
  bool upward = false;  // rotated by 90 degrees, upward
};

// Cells of a heat map, scaled into a rectangle. `levels` has rows * columns
// indices into Cividis(), the first row on top.
struct Cells {
  std::string name;
  int rows = 0, columns = 0;
  std::vector<std::uint8_t> levels;
  Point at;
  double width = 0, height = 0;
};

// Coordinates have two decimals.
class Svg {
 public:
  // Screen readers read the title and the description. The title is also drawn
  // at the top, and cut at the picture's width.
  Svg(const std::string& title, const std::string& description, int width,
      int height);

  int width() const { return width_; }

  void Add(const Path& path);
  void Add(const Label& label);
  void Add(const Cells& cells);

  // Returns the whole file; call it after everything is added.
  std::string File() const { return text_ + "</svg>\n"; }

 private:
  int width_;
  std::string text_;
};

// Returns an upper bound on the width of a text, for legends and margins.
// Hardly any font has wider letters on average.
inline double TextWidth(const std::string& text, double size) {
  return 0.6 * size * static_cast<double>(text.size());
}

}  // namespace posenc::plot
