#include "client/tools/plot/chart.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "client/tools/plot/axis.h"
#include "client/tools/plot/colors.h"

namespace posenc::plot {
namespace {

constexpr double kLegendLine = 20, kSample = 34;

struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();

  void Include(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
};

bool Shown(const Axis& axis, double value) {
  return std::isfinite(value) && (!axis.log || value > 0);
}

// Makes a scale between two pixels. `margin` is the free space at each end, as
// a fraction of the range, so that curves do not touch the frame.
Scale Fit(const Axis& axis, Range range, double margin, double from,
          double to) {
  if (range.low > range.high) range = {1, 2};  // nothing to show
  Scale scale{axis.log, range.low, range.high, from, to};
  if (axis.log) {
    const double room = std::pow(scale.high / scale.low, margin);
    scale.low /= room;
    scale.high *= room;
    if (scale.high <= scale.low) {
      scale.low /= 2;
      scale.high *= 2;
    }
    return scale;
  }
  constexpr double kGreatest = std::numeric_limits<double>::max();
  const double room = 2 * margin * (scale.high / 2 - scale.low / 2);
  scale.low = std::max(scale.low - room, -kGreatest);
  scale.high = std::min(scale.high + room, kGreatest);
  if (scale.high <= scale.low) {
    scale.low -= 0.5;
    scale.high += 0.5;
  }
  // Adding 0.5 does not change numbers beyond 2^53. For such numbers the range
  // extends to 0.
  if (scale.high <= scale.low) (scale.low > 0 ? scale.low : scale.high) = 0;
  return scale;
}

// Widens the scale with fewer units per pixel, until both scales have the same
// number of units per pixel.
void MakeEqual(Scale* x, Scale* y) {
  const double x_unit = (x->high - x->low) / std::fabs(x->to - x->from);
  const double y_unit = (y->high - y->low) / std::fabs(y->to - y->from);
  Scale* const narrow = x_unit < y_unit ? x : y;
  const double factor = std::max(x_unit, y_unit) / std::min(x_unit, y_unit);
  const double center = (narrow->low + narrow->high) / 2;
  const double half = (narrow->high - narrow->low) / 2 * factor;
  narrow->low = center - half;
  narrow->high = center + half;
}

// Joins curves with equal points into one curve with all their names, because
// the upper curve would hide the others.
std::vector<Curve> JoinAlike(const std::vector<Curve>& curves) {
  std::vector<Curve> joined;
  for (const Curve& curve : curves) {
    const auto alike = std::find_if(
        joined.begin(), joined.end(),
        [&](const Curve& other) { return other.points == curve.points; });
    if (alike == joined.end()) {
      joined.push_back(curve);
    } else {
      alike->name += ", " + curve.name;
    }
  }
  return joined;
}

// Adds a line sample and a name for each curve, in lines under the title.
// Returns the top of the chart's area, which is below these lines.
double AddLegend(const std::vector<Curve>& curves, Svg* svg) {
  double x = kLeft, y = kTop + 6;
  for (std::size_t i = 0; i < curves.size(); ++i) {
    const std::string& name = curves[i].name;
    const double width = kSample + 8 + TextWidth(name, kTextSize) + 18;
    if (x > kLeft && x + width > svg->width()) {
      x = kLeft;
      y += kLegendLine;
    }
    svg->Add(Path{"legend",
                  "",
                  {{x, y - 4}, {x + kSample, y - 4}},
                  CurveColor(i),
                  2,
                  CurveDash(i)});
    svg->Add(
        Label{"legend", name, {x + kSample + 8, y}, Anchor::kStart, kTextSize});
    x += width;
  }
  return y + 14;
}

void AddRule(const Rule& rule, const Scale& x, const Scale& y, Svg* svg) {
  if (!(rule.at >= y.low && rule.at <= y.high)) return;
  const double at = y.At(rule.at);
  svg->Add(Path{"rule", rule.text, {{x.from, at}, {x.to, at}}, kInk, 1, "4 3"});
  svg->Add(
      Label{"rule", rule.text, {x.to - 6, at - 6}, Anchor::kEnd, kTickSize});
}

}  // namespace

std::string Draw(const Chart& chart, int width, int height) {
  Svg svg(chart.title, chart.description, width, height);
  const std::vector<Curve> curves = JoinAlike(chart.curves);
  const double top = chart.curves.size() < 2 ? kTop : AddLegend(curves, &svg);

  Range x_range, y_range;
  for (const double y : chart.shown_y) y_range.Include(y);
  const auto shown = [&](const std::pair<double, double>& point) {
    return Shown(chart.x, point.first) && Shown(chart.y, point.second);
  };
  for (const Curve& curve : curves) {
    for (const auto& point : curve.points) {
      if (!shown(point)) continue;
      x_range.Include(point.first);
      y_range.Include(point.second);
    }
  }
  for (const Rule& rule : chart.rules) {
    if (Shown(chart.y, rule.at)) y_range.Include(rule.at);
  }
  Scale x = Fit(chart.x, x_range, chart.equal_units ? 0.04 : 0, kLeft,
                width - kRight);
  Scale y = Fit(chart.y, y_range, 0.04, height - kBottom, top);
  if (chart.equal_units) MakeEqual(&x, &y);

  AddXTicks(x, y.from, y.to, true, &svg);
  AddYTicks(y, x.from, x.to, true, &svg);
  svg.Add(Path{
      "frame", "", {{x.from, y.to}, {x.from, y.from}, {x.to, y.from}}, kInk});
  AddXLabel(chart.x.label, (x.from + x.to) / 2, y.from, &svg);
  AddYLabel(chart.y.label, x.from, (y.from + y.to) / 2, &svg);
  for (std::size_t i = 0; i < curves.size(); ++i) {
    Path path{"curve", curves[i].name, {}, CurveColor(i), 2, CurveDash(i)};
    for (const auto& point : curves[i].points) {
      if (!shown(point)) continue;
      path.points.push_back({x.At(point.first), y.At(point.second)});
    }
    svg.Add(path);
  }
  for (const Rule& rule : chart.rules) AddRule(rule, x, y, &svg);
  return svg.File();
}

}  // namespace posenc::plot
