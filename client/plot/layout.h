// What charts and heat maps have around them: title, axis labels and ticks.

#pragma once

#include <string>
#include <vector>

#include "client/plot/axis.h"
#include "client/plot/scene.h"

namespace posenc::plot {

// Pixels between the picture's edges and its axes: room for tick texts of six
// digits and an upward label on the left, and for two lines below.
inline constexpr double kLeft = 78, kRight = 24, kBottom = 54, kTop = 44;
inline constexpr double kTickSize = 12, kTextSize = 13, kTitleSize = 15;

// The title above everything. It is cut at the picture's width; the scene's own
// title is not.
void AddTitle(Scene* scene);

// A line from tick to tick across the picture, or, without `grid`, a short one
// outside of it; and each tick's text. `low` and `high` are the other axis's
// ends in pixels: bottom and top of an x axis, left and right of a y axis.
void AddXTicks(const Scale& scale, double bottom, double top, bool grid,
               Scene* scene);
void AddYTicks(const Scale& scale, double left, double right, bool grid,
               Scene* scene);

void AddXLabel(const std::string& text, double center, double bottom,
               Scene* scene);
void AddYLabel(const std::string& text, double left, double center,
               Scene* scene);

}  // namespace posenc::plot
