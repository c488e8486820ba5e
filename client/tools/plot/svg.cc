#include "client/tools/plot/svg.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "client/tools/plot/colors.h"
#include "client/tools/plot/png.h"

namespace posenc::plot {
namespace {

constexpr double kTitleSize = 15;

// Returns at most two decimals, without trailing zeros.
std::string Number(double value) {
  return absl::StrCat(std::round(value * 100) / 100);
}

// Replaces the five characters that XML reserves, and control characters, which
// XML cannot have.
std::string EscapeXml(std::string text) {
  for (char& letter : text) {
    if (static_cast<unsigned char>(letter) < 0x20) letter = ' ';
  }
  return absl::StrReplaceAll(text, {{"&", "&amp;"},
                                    {"<", "&lt;"},
                                    {">", "&gt;"},
                                    {"\"", "&quot;"},
                                    {"'", "&#39;"}});
}

}  // namespace

Svg::Svg(const std::string& title, const std::string& description, int width,
         int height)
    : width_(width),
      text_(absl::StrFormat(
          "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" "
          "height=\"%d\" "
          "viewBox=\"0 0 %d %d\" role=\"img\" aria-labelledby=\"title desc\" "
          "font-family=\"system-ui, sans-serif\" fill=\"#%06x\">\n"
          "<title id=\"title\">%s</title>\n<desc id=\"desc\">%s</desc>\n"
          "<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n",
          width, height, width, height, kInk, EscapeXml(title),
          EscapeXml(description))) {
  std::string text = title;
  const auto fits = static_cast<std::size_t>(
      std::max(4.0, (width - 20) / TextWidth("m", kTitleSize)));
  if (text.size() > fits) text = text.substr(0, fits - 3) + "...";
  Add(Label{"title", text, {14, 25}, Anchor::kStart, kTitleSize, false});
}

void Svg::Add(const Path& path) {
  absl::StrAppendFormat(&text_,
                        "<polyline class=\"%s\" fill=\"none\" stroke=\"#%06x\" "
                        "stroke-width=\"%s\" stroke-linejoin=\"round\"",
                        EscapeXml(path.role), path.color, Number(path.width));
  if (!path.dash.empty()) {
    absl::StrAppend(&text_, " stroke-dasharray=\"", path.dash, "\"");
  }
  text_ += " points=\"";
  const char* separator = "";
  for (const Point& point : path.points) {
    absl::StrAppend(&text_, separator, Number(point.x), ",", Number(point.y));
    separator = " ";
  }
  if (path.name.empty()) {
    text_ += "\"/>\n";
  } else {
    absl::StrAppend(&text_, "\"><title>", EscapeXml(path.name),
                    "</title></polyline>\n");
  }
}

void Svg::Add(const Label& label) {
  constexpr const char* kAnchors[] = {"start", "middle", "end"};
  const std::string x = Number(label.at.x), y = Number(label.at.y);
  absl::StrAppendFormat(&text_,
                        "<text class=\"%s\" x=\"%s\" y=\"%s\" font-size=\"%s\" "
                        "text-anchor=\"%s\"",
                        EscapeXml(label.role), x, y, Number(label.size),
                        kAnchors[static_cast<int>(label.anchor)]);
  if (label.upward) {
    absl::StrAppendFormat(&text_, " transform=\"rotate(-90 %s %s)\"", x, y);
  }
  absl::StrAppend(&text_, ">", EscapeXml(label.text), "</text>\n");
}

// Cells larger than a pixel have sharp edges; browsers average smaller cells.
void Svg::Add(const Cells& cells) {
  const std::string png = CividisPng(cells.columns, cells.rows, cells.levels);
  const bool enlarged =
      cells.width >= cells.columns && cells.height >= cells.rows;
  absl::StrAppendFormat(
      &text_,
      "<image class=\"cells\" x=\"%s\" y=\"%s\" width=\"%s\" height=\"%s\" "
      "preserveAspectRatio=\"none\"%s href=\"data:image/png;base64,%s\">"
      "<title>%s</title></image>\n",
      Number(cells.at.x), Number(cells.at.y), Number(cells.width),
      Number(cells.height),
      enlarged ? " style=\"image-rendering:pixelated\"" : "",
      absl::Base64Escape(png), EscapeXml(cells.name));
}

}  // namespace posenc::plot
