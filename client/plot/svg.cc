#include "client/plot/svg.h"

#include <cmath>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/plot/colors.h"
#include "client/plot/png.h"

namespace posenc::plot {
namespace {

// At most two decimals, and none that are 0.
std::string Number(double value) {
  return absl::StrCat(std::round(value * 100) / 100);
}

void Write(const Path& path, std::string* out) {
  absl::StrAppendFormat(out,
                        "<polyline class=\"%s\" fill=\"none\" stroke=\"#%06x\" "
                        "stroke-width=\"%s\" stroke-linejoin=\"round\"",
                        EscapeXml(path.role), path.color, Number(path.width));
  if (!path.dash.empty()) {
    absl::StrAppendFormat(
        out, " stroke-dasharray=\"%s\"",
        absl::StrJoin(path.dash, " ", [](std::string* text, double length) {
          *text += Number(length);
        }));
  }
  *out += " points=\"";
  const char* separator = "";
  for (const Point& point : path.points) {
    absl::StrAppend(out, separator, Number(point.x), ",", Number(point.y));
    separator = " ";
  }
  if (path.name.empty()) {
    *out += "\"/>\n";
  } else {
    absl::StrAppend(out, "\"><title>", EscapeXml(path.name),
                    "</title></polyline>\n");
  }
}

void Write(const Label& label, std::string* out) {
  constexpr const char* kAnchors[] = {"start", "middle", "end"};
  const std::string x = Number(label.at.x), y = Number(label.at.y);
  absl::StrAppendFormat(out,
                        "<text class=\"%s\" x=\"%s\" y=\"%s\" font-size=\"%s\" "
                        "text-anchor=\"%s\"",
                        EscapeXml(label.role), x, y, Number(label.size),
                        kAnchors[static_cast<int>(label.anchor)]);
  if (label.upward) {
    absl::StrAppendFormat(out, " transform=\"rotate(-90 %s %s)\"", x, y);
  }
  absl::StrAppend(out, ">", EscapeXml(label.text), "</text>\n");
}

// Cells that are larger than a pixel have edges; smaller ones are averaged, as
// browsers do it by themselves.
void Write(const Cells& cells, std::string* out) {
  const std::string png =
      CividisPng(cells.columns, cells.rows, cells.levels, cells.masked);
  const bool enlarged =
      cells.width >= cells.columns && cells.height >= cells.rows;
  absl::StrAppendFormat(
      out,
      "<image class=\"cells\" x=\"%s\" y=\"%s\" width=\"%s\" height=\"%s\" "
      "preserveAspectRatio=\"none\"%s href=\"data:image/png;base64,%s\">"
      "<title>%s</title></image>\n",
      Number(cells.at.x), Number(cells.at.y), Number(cells.width),
      Number(cells.height),
      enlarged ? " style=\"image-rendering:pixelated\"" : "",
      absl::Base64Escape(png), EscapeXml(cells.name));
}

}  // namespace

std::string EscapeXml(const std::string& text) {
  std::string escaped;
  for (const char letter : text) {
    switch (letter) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      case '\'':
        escaped += "&#39;";
        break;
      default:
        escaped += static_cast<unsigned char>(letter) < 0x20 ? ' ' : letter;
    }
  }
  return escaped;
}

std::string ToSvg(const Scene& scene) {
  std::string out = absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
      "viewBox=\"0 0 %d %d\" role=\"img\" aria-labelledby=\"title desc\" "
      "font-family=\"system-ui, sans-serif\" fill=\"#%06x\">\n"
      "<title id=\"title\">%s</title>\n<desc id=\"desc\">%s</desc>\n"
      "<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n",
      scene.width, scene.height, scene.width, scene.height, kInk,
      EscapeXml(scene.title), EscapeXml(scene.description));
  for (const Mark& mark : scene.marks) {
    std::visit([&out](const auto& one) { Write(one, &out); }, mark);
  }
  return out + "</svg>\n";
}

}  // namespace posenc::plot
