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

// A straight reference line across the picture, with a text at its end.
struct Rule {
  bool vertical = false;
  double at = 0;
  std::string text;
};

struct Chart {
  std::string title, description;
  Axis x, y;
  std::vector<Curve> curves;
  std::vector<Rule> rules;
  // The picture shows at least these values of y, curves or not.
  std::vector<double> shown_y;
  // A unit is as long on both axes, and circles are round.
  bool equal_units = false;
};

// Curves of the same points are drawn once, with all of their names. Points
// that an axis cannot show are left out, and the curve goes on after them:
// those that are not finite, and on a logarithmic axis those that are not
// positive. The picture is SVG.
std::string Draw(const Chart& chart, int width, int height);

}  // namespace posenc::plot
