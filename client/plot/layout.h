// The frame of charts and heat maps: title, axis labels and ticks.

#pragma once

#include <string>

#include "client/plot/axis.h"
#include "client/plot/svg.h"

namespace posenc::plot {

// Pixels between the picture's edges and its axes: room for tick texts of six
// digits and an upward label on the left, and for two lines below.
inline constexpr double kLeft = 78, kRight = 24, kBottom = 54, kTop = 44;
inline constexpr double kTickSize = 12, kTextSize = 13, kTitleSize = 15;

// Adds the title at the top, cut at the picture's width.
void AddTitle(const std::string& title, Svg* svg);

// Add each tick's text and its line: with `grid` across the picture, else a
// short one outside. The ends of the other axis, in pixels, are `bottom` and
// `top` for an x axis, `left` and `right` for a y axis.
void AddXTicks(const Scale& scale, double bottom, double top, bool grid,
               Svg* svg);
void AddYTicks(const Scale& scale, double left, double right, bool grid,
               Svg* svg);

void AddXLabel(const std::string& text, double center, double bottom, Svg* svg);
void AddYLabel(const std::string& text, double left, double center, Svg* svg);

}  // namespace posenc::plot
