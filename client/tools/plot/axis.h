// Axes of charts and heat maps: the position of a value between two pixels,
// ticks and labels.

#pragma once

#include <string>
#include <vector>

#include "client/tools/plot/svg.h"

namespace posenc::plot {

// Maps [low, high] to pixels, linearly or by the logarithm. low < high; both
// must be positive on a logarithmic axis.
struct Scale {
  bool log = false;
  double low = 0, high = 1;
  double from = 0, to = 1;  // pixels of low and high
  bool whole = false;       // ticks only at whole numbers

  double At(double value) const;
};

struct Tick {
  double value = 0;
  std::string text;
};

// Returns about five multiples of 1, 2 or 5 times a power of ten in the scale.
// On a logarithmic scale returns powers of ten. If there are few powers,
// returns also their multiples by 2 and 5. If there are many powers, returns
// only every second or third power.
std::vector<Tick> Ticks(const Scale& scale);

// Pixels between the picture's edges and its axes. These margins are enough for
// tick texts of six digits and a vertical label on the left, and for two lines
// of text below.
inline constexpr double kLeft = 78, kRight = 24, kBottom = 54, kTop = 44;
inline constexpr double kTickSize = 12, kTextSize = 13;

// Add the text and the line of each tick. With `grid` the line crosses the
// picture; otherwise the line is short and outside. The ends of the other axis,
// in pixels, are `bottom` and `top` for an x axis, `left` and `right` for a y
// axis.
void AddXTicks(const Scale& scale, double bottom, double top, bool grid,
               Svg* svg);
void AddYTicks(const Scale& scale, double left, double right, bool grid,
               Svg* svg);

void AddXLabel(const std::string& text, double center, double bottom, Svg* svg);
void AddYLabel(const std::string& text, double left, double center, Svg* svg);

}  // namespace posenc::plot
