#include "client/load/svg.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"

namespace posenc::load {
namespace {

// Size and margins in the SVG's own units; the page scales it to its column.
constexpr double kWidth = 640, kHeight = 300;
constexpr double kLeft = 74, kRight = 14, kTop = 12, kBottom = 44;
constexpr int kColors = 6;

// Maps values of an axis to its place in the SVG.
struct Scale {
  bool log = false;
  double low = 0, high = 1;  // of the values
  double from = 0, to = 1;   // where low and high are drawn

  double At(double value) const {
    const double part = log ? std::log(value / low) / std::log(high / low)
                            : (value - low) / (high - low);
    return from + part * (to - from);
  }
};

Scale Fit(const Axis& axis, double low, double high, double from, double to) {
  Scale scale{axis.log, low, high, from, to};
  if (axis.log) {
    // 15 % of room on both sides, which is also an extent if all values are
    // equal.
    scale.low = low / 1.15;
    scale.high = high * 1.15;
  } else {
    if (axis.from_zero) scale.low = std::min(0.0, low);
    if (scale.high <= scale.low) scale.high = scale.low + 1;
    if (axis.from_zero) scale.high += 0.06 * (scale.high - scale.low);
  }
  return scale;
}

// Where ticks stand: multiples of 1, 2 or 5 times a power of ten, about five of
// them; on a logarithmic axis 1, 2 and 5 of each decade, or 1 if it is wide.
std::vector<double> RoundNumbers(const Scale& scale) {
  std::vector<double> ticks;
  if (scale.log) {
    const bool wide = scale.high / scale.low > 300;
    // The loop ends after 40 decades whatever the scale: latencies in
    // microseconds span fewer.
    const int first = static_cast<int>(std::floor(std::log10(scale.low)));
    for (int e = first; e < first + 40; ++e) {
      for (const double m : {1.0, 2.0, 5.0}) {
        const double tick = m * std::pow(10.0, e);
        if (tick > scale.high) return ticks;
        if (tick >= scale.low && (m == 1 || !wide)) ticks.push_back(tick);
      }
    }
    return ticks;
  }
  const double rough = (scale.high - scale.low) / 5;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  const double lead = rough / power;
  const double step = power * (lead > 5 ? 10 : lead > 2 ? 5 : lead > 1 ? 2 : 1);
  for (int i = 0; i < 12; ++i) {
    const double tick = (std::ceil(scale.low / step) + i) * step;
    if (tick > scale.high) break;
    ticks.push_back(tick);
  }
  return ticks;
}

std::vector<std::pair<double, std::string>> Ticks(const Axis& axis,
                                                  const Scale& scale) {
  std::vector<std::pair<double, std::string>> ticks;
  if (!axis.ticks.empty()) {
    for (const auto& tick : axis.ticks) {
      if (tick.first >= scale.low && tick.first <= scale.high) {
        ticks.push_back(tick);
      }
    }
    return ticks;
  }
  for (const double value : RoundNumbers(scale)) {
    ticks.emplace_back(
        value, axis.text ? axis.text(value) : absl::StrFormat("%g", value));
  }
  return ticks;
}

}  // namespace

std::string EscapeHtml(const std::string& text) {
  return absl::StrReplaceAll(
      text, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}});
}

std::string Chart(const std::string& title, const Axis& x, const Axis& y,
                  const std::vector<Line>& lines) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  double x_low = kInfinity, x_high = -kInfinity;
  double y_low = kInfinity, y_high = -kInfinity;
  const auto shown = [&](const std::pair<double, double>& point) {
    return std::isfinite(point.first) && std::isfinite(point.second) &&
           (!x.log || point.first > 0) && (!y.log || point.second > 0);
  };
  for (const Line& line : lines) {
    for (const auto& point : line.points) {
      if (!shown(point)) continue;
      x_low = std::min(x_low, point.first);
      x_high = std::max(x_high, point.first);
      y_low = std::min(y_low, point.second);
      y_high = std::max(y_high, point.second);
    }
  }
  std::string out =
      absl::StrCat("<figure><figcaption>", EscapeHtml(title), "</figcaption>");
  if (x_low > x_high) return absl::StrCat(out, "<p>no data</p></figure>\n");
  const Scale xs = Fit(x, x_low, x_high, kLeft, kWidth - kRight);
  const Scale ys = Fit(y, y_low, y_high, kHeight - kBottom, kTop);

  absl::StrAppendFormat(
      &out, "<svg viewBox=\"0 0 %g %g\" role=\"img\" aria-label=\"%s\">\n",
      kWidth, kHeight, EscapeHtml(title));
  for (const auto& [value, text] : Ticks(y, ys)) {
    absl::StrAppendFormat(
        &out,
        "<line class=\"grid\" x1=\"%g\" x2=\"%g\" y1=\"%.1f\" y2=\"%.1f\"/>"
        "<text class=\"ty\" x=\"%g\" y=\"%.1f\">%s</text>\n",
        kLeft, kWidth - kRight, ys.At(value), ys.At(value), kLeft - 8,
        ys.At(value) + 4, EscapeHtml(text));
  }
  for (const auto& [value, text] : Ticks(x, xs)) {
    absl::StrAppendFormat(
        &out,
        "<line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%g\" y2=\"%g\"/>"
        "<text class=\"tx\" x=\"%.1f\" y=\"%g\">%s</text>\n",
        xs.At(value), xs.At(value), kTop, kHeight - kBottom, xs.At(value),
        kHeight - kBottom + 17, EscapeHtml(text));
  }
  absl::StrAppendFormat(
      &out, "<text class=\"label\" x=\"%g\" y=\"%g\">%s</text>\n",
      (kLeft + kWidth - kRight) / 2, kHeight - 7, EscapeHtml(x.label));
  for (const Line& line : lines) {
    std::string path, dots;
    for (const auto& point : line.points) {
      if (!shown(point)) continue;
      const double px = xs.At(point.first), py = ys.At(point.second);
      absl::StrAppendFormat(&path, "%s%.1f,%.1f", path.empty() ? "" : " ", px,
                            py);
      if (!line.marks) continue;
      absl::StrAppendFormat(
          &dots,
          "<circle class=\"f%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"3.2\"><title>%s: "
          "%s</title></circle>",
          line.color % kColors, px, py, EscapeHtml(line.name),
          EscapeHtml(y.text ? y.text(point.second)
                            : absl::StrFormat("%g", point.second)));
    }
    absl::StrAppendFormat(
        &out, "<polyline class=\"line c%d%s\" points=\"%s\"/>%s\n",
        line.color % kColors, line.dashed ? " dashed" : "", path, dots);
  }
  out += "</svg>";
  if (lines.size() > 1) {
    out += "<div class=\"legend\">";
    for (const Line& line : lines) {
      absl::StrAppendFormat(
          &out,
          "<span><svg viewBox=\"0 0 22 8\"><line class=\"line c%d%s\" x1=\"0\" "
          "x2=\"22\" y1=\"4\" y2=\"4\"/></svg>%s</span>",
          line.color % kColors, line.dashed ? " dashed" : "",
          EscapeHtml(line.name));
    }
    out += "</div>";
  }
  return out + "</figure>\n";
}

}  // namespace posenc::load
