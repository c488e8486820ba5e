// Line charts as inline SVG, with colours by class from the page's style sheet,
// so that a dark page has dark charts. Only what the report needs: lines, dots,
// grid, legend, linear and logarithmic axes.

#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace posenc::load {

struct Line {
  std::string name;
  std::vector<std::pair<double, double>> points;
  int color = 0;  // index of class "c0" ... "c5", modulo 6
  bool dashed = false;
  bool marks = false;  // a dot at every point
};

struct Axis {
  std::string label;
  bool log = false;
  bool from_zero = false;
  std::function<std::string(double)> text;  // makes a tick's label; or %g
  // Value and label of each tick; if empty, ticks are at round numbers.
  std::vector<std::pair<double, std::string>> ticks;
};

// A <figure> with its caption. Points that an axis cannot show are left out:
// those that are not finite, and on a logarithmic axis those that are not
// positive. If none is left, the figure says so.
std::string Chart(const std::string& title, const Axis& x, const Axis& y,
                  const std::vector<Line>& lines);

std::string EscapeHtml(const std::string& text);

}  // namespace posenc::load
