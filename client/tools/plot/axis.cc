#include "client/tools/plot/axis.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "client/tools/plot/colors.h"

namespace posenc::plot {
namespace {

// Upper bound on the number of ticks, so that they do not touch each other in a
// picture of any size.
constexpr int kMostTicks = 8;

// Returns a text of at most six digits: "0.001", "4096", "1e6".
std::string TickText(double value) {
  std::string text = absl::StrFormat("%.6g", value);
  return absl::StrReplaceAll(text, {{"e+0", "e"}, {"e+", "e"}, {"e-0", "e-"}});
}

std::vector<Tick> LogTicks(const Scale& scale) {
  // Widens the range a little, so that rounding of the logarithm does not lose
  // ticks at the ends.
  const double low = std::log10(scale.low) - 1e-9;
  const double high = std::log10(scale.high) + 1e-9;
  const int first = static_cast<int>(std::ceil(low));
  const int last = static_cast<int>(std::floor(high));
  const int stride = std::max(0, last - first) / kMostTicks + 1;
  const bool few = high - low <= 3;
  std::vector<Tick> ticks;
  for (int exponent = few ? first - 1 : first; exponent <= last;
       exponent += stride) {
    for (const int digit : {1, 2, 5}) {
      const double value = digit * std::pow(10.0, exponent);
      const double place = std::log10(value);
      if ((digit > 1 && !few) || place < low || place > high) continue;
      ticks.push_back({value, TickText(value)});
    }
  }
  return ticks;
}

constexpr double kTickLength = 5;

void AddTick(Point from, Point to, bool grid, Svg* svg) {
  svg->Add(
      Path{grid ? "grid" : "tick", "", {from, to}, grid ? kGrid : kInk, 1, {}});
}

}  // namespace

double Scale::At(double value) const {
  // Halves are exact, and differences of halves do not overflow.
  const double part = log ? std::log(value / low) / std::log(high / low)
                          : (value / 2 - low / 2) / (high / 2 - low / 2);
  return from + part * (to - from);
}

std::vector<Tick> Ticks(const Scale& scale) {
  if (scale.log) return LogTicks(scale);
  const double rough = (scale.high / 2 - scale.low / 2) / 2.5;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  const double lead = rough / power;
  const double step = std::max(power * (lead > 5   ? 10
                                        : lead > 2 ? 5
                                        : lead > 1 ? 2
                                                   : 1),
                               scale.whole ? 1.0 : 0.0);
  const double first = std::ceil(scale.low / step - 1e-9);
  std::vector<Tick> ticks;
  for (int i = 0; i <= kMostTicks; ++i) {
    // The multiple is rounded only once, so that 0 is exactly 0, and 0.3 is not
    // 0.30000004.
    const double value = (first + i) * step;
    if (!std::isfinite(value) || value > scale.high + 1e-9 * step) break;
    ticks.push_back({value, TickText(value)});
  }
  return ticks;
}

void AddXTicks(const Scale& scale, double bottom, double top, bool grid,
               Svg* svg) {
  double free_from = -1e9;
  for (const Tick& tick : Ticks(scale)) {
    const double x = scale.At(tick.value);
    AddTick({x, bottom}, {x, grid ? top : bottom + kTickLength}, grid, svg);
    // Leaves out a text that would touch its neighbour.
    const double half = TextWidth(tick.text, kTickSize) / 2;
    if (x - half < free_from) continue;
    free_from = x + half + 4;
    svg->Add(Label{
        "tick-x", tick.text, {x, bottom + 19}, Anchor::kMiddle, kTickSize});
  }
}

void AddYTicks(const Scale& scale, double left, double right, bool grid,
               Svg* svg) {
  double last = -1e9;
  for (const Tick& tick : Ticks(scale)) {
    const double y = scale.At(tick.value);
    AddTick({left, y}, {grid ? right : left - kTickLength, y}, grid, svg);
    if (std::fabs(y - last) < kTickSize + 2) continue;
    last = y;
    svg->Add(
        Label{"tick-y", tick.text, {left - 8, y + 4}, Anchor::kEnd, kTickSize});
  }
}

void AddXLabel(const std::string& text, double center, double bottom,
               Svg* svg) {
  svg->Add(
      Label{"label", text, {center, bottom + 41}, Anchor::kMiddle, kTextSize});
}

void AddYLabel(const std::string& text, double left, double center, Svg* svg) {
  svg->Add(Label{
      "label", text, {left - 60, center}, Anchor::kMiddle, kTextSize, true});
}

}  // namespace posenc::plot
