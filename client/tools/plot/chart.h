// Curves over two axes, with a legend.

#pragma once

#include <string>
#include <utility>
#include <vector>

namespace posenc::plot {

struct Axis {
  std::string label;
  bool log = false;
};

struct Curve {
  std::string name;  // in the legend
  std::vector<std::pair<double, double>> points;
};

// A horizontal reference line, with a text above its right end.
struct Rule {
  double at = 0;
  std::string text;
};

struct Chart {
  std::string title, description;
  Axis x, y;
  std::vector<Curve> curves;
  std::vector<Rule> rules;
  // The picture always shows these values of y.
  std::vector<double> shown_y;
  // A unit has the same length on both axes, so that circles are round.
  bool equal_units = false;
};

// Returns the picture as SVG. Curves with equal points are drawn once, with all
// of their names. Points that are not finite, or not positive on a logarithmic
// axis, are left out, and the curve continues after them.
std::string Draw(const Chart& chart, int width, int height);

}  // namespace posenc::plot
