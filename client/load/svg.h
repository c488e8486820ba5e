// Line charts as inline SVG, styled by the page's style sheet.

#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace posenc::load {

struct Line {
  std::string name;
  std::vector<std::pair<double, double>> points;
  int color = 0;  // class "c0" ... "c5"
  bool dashed = false;
  bool marks = false;  // a dot at every point
};

struct Axis {
  std::string label;
  bool log = false;
  bool from_zero = false;
  std::function<std::string(double)> text;  // of a tick
  // Instead of ticks at round numbers.
  std::vector<std::pair<double, std::string>> ticks;
};

// A <figure>. Points that a logarithmic axis cannot show are left out; without
// any point the figure says so.
std::string Chart(const std::string& title, const Axis& x, const Axis& y,
                  const std::vector<Line>& lines);

std::string EscapeHtml(const std::string& text);

}  // namespace posenc::load
