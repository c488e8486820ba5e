#include "client/plot/layout.h"

#include <algorithm>
#include <cmath>

#include "client/plot/colors.h"

namespace posenc::plot {
namespace {

constexpr double kTickLength = 5;

void AddTick(Point from, Point to, bool grid, Svg* svg) {
  svg->Add(
      Path{grid ? "grid" : "tick", "", {from, to}, grid ? kGrid : kInk, 1, {}});
}

}  // namespace

void AddTitle(const std::string& title, Svg* svg) {
  std::string text = title;
  const std::size_t fits = static_cast<std::size_t>(
      std::max(4.0, (svg->width() - 20) / TextWidth("m", kTitleSize)));
  if (text.size() > fits) text = text.substr(0, fits - 3) + "...";
  svg->Add(Label{"title", text, {14, 25}, Anchor::kStart, kTitleSize, false});
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
