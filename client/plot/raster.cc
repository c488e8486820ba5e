#include "client/plot/raster.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

#include "client/plot/colors.h"
#include "client/plot/stroke_font.h"

namespace posenc::plot {
namespace {

double Distance(Point p, Point a, Point b) {
  const double dx = b.x - a.x, dy = b.y - a.y;
  const double square = dx * dx + dy * dy;
  const double along =
      square == 0 ? 0
                  : std::clamp(((p.x - a.x) * dx + (p.y - a.y) * dy) / square,
                               0.0, 1.0);
  return std::hypot(p.x - a.x - along * dx, p.y - a.y - along * dy);
}

// The pieces of a line that its dashes cover.
std::vector<std::vector<Point>> Dashes(const std::vector<Point>& points,
                                       const std::vector<double>& dash) {
  if (dash.empty()) return {points};
  std::vector<std::vector<Point>> pieces(1);
  std::size_t phase = 0;
  double left = dash[0];
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (i == 0) {
      pieces.back().push_back(points[0]);
      continue;
    }
    Point from = points[i - 1];
    const Point to = points[i];
    double length = std::hypot(to.x - from.x, to.y - from.y);
    while (length > left) {
      const double part = left / length;
      from = {from.x + part * (to.x - from.x), from.y + part * (to.y - from.y)};
      length -= left;
      if (phase % 2 == 0) pieces.back().push_back(from);
      phase = (phase + 1) % dash.size();
      left = dash[phase];
      if (phase % 2 == 0) pieces.push_back({from});
    }
    left -= length;
    if (phase % 2 == 0) pieces.back().push_back(to);
  }
  return pieces;
}

class Canvas {
 public:
  Canvas(int width, int height)
      : width_(width),
        height_(height),
        pixels_(std::size_t{3} * width * height, 255) {}

  // All strokes at once: where two meet, the pixel is as dark as of one.
  void Draw(const std::vector<std::vector<Point>>& strokes, double line,
            Color color) {
    int left = width_, right = -1, top = height_, bottom = -1;
    for (const std::vector<Point>& stroke : strokes) {
      for (const Point& point : stroke) {
        left = std::min(left, Cut(point.x - line - 1, width_));
        right = std::max(right, Cut(point.x + line + 1, width_));
        top = std::min(top, Cut(point.y - line - 1, height_));
        bottom = std::max(bottom, Cut(point.y + line + 1, height_));
      }
    }
    if (right < left || bottom < top) return;
    const int columns = right - left + 1;
    std::vector<float> cover(std::size_t(columns) * (bottom - top + 1), 0);
    const auto cover_segment = [&](Point a, Point b) {
      const int y_end = Cut(std::max(a.y, b.y) + line + 1, height_);
      const int x_end = Cut(std::max(a.x, b.x) + line + 1, width_);
      for (int y = Cut(std::min(a.y, b.y) - line - 1, height_); y <= y_end;
           ++y) {
        for (int x = Cut(std::min(a.x, b.x) - line - 1, width_); x <= x_end;
             ++x) {
          const double part =
              line / 2 + 0.5 - Distance({x + 0.5, y + 0.5}, a, b);
          float& old = cover[std::size_t(y - top) * columns + (x - left)];
          old = std::max(old, static_cast<float>(std::clamp(part, 0.0, 1.0)));
        }
      }
    };
    for (const std::vector<Point>& stroke : strokes) {
      if (stroke.size() == 1) cover_segment(stroke[0], stroke[0]);
      for (std::size_t i = 1; i < stroke.size(); ++i) {
        cover_segment(stroke[i - 1], stroke[i]);
      }
    }
    for (int y = top; y <= bottom; ++y) {
      for (int x = left; x <= right; ++x) {
        Blend(x, y, cover[std::size_t(y - top) * columns + (x - left)], color);
      }
    }
  }

  void Draw(const Label& label) {
    const double size = label.size;
    const double width = 0.6 * size * static_cast<double>(label.text.size());
    const double shift = label.anchor == Anchor::kStart    ? 0
                         : label.anchor == Anchor::kMiddle ? width / 2
                                                           : width;
    std::vector<std::vector<Point>> strokes = TextStrokes(label.text, size);
    for (std::vector<Point>& stroke : strokes) {
      for (Point& point : stroke) {
        point.x -= shift;
        point = label.upward
                    ? Point{label.at.x + point.y, label.at.y - point.x}
                    : Point{label.at.x + point.x, label.at.y + point.y};
      }
    }
    Draw(strokes, size / 10, kInk);
  }

  // Each pixel is the mean colour of the cells that it covers.
  void Draw(const Cells& cells) {
    const int left = Cut(std::lround(cells.at.x), width_);
    const int top = Cut(std::lround(cells.at.y), height_);
    const int right = Cut(std::lround(cells.at.x + cells.width) - 1, width_);
    const int bottom = Cut(std::lround(cells.at.y + cells.height) - 1, height_);
    const auto first = [](int pixel, int pixels, int count) {
      return static_cast<int>(std::int64_t{pixel} * count / pixels);
    };
    const int columns = right - left + 1, rows = bottom - top + 1;
    for (int y = 0; y < rows; ++y) {
      const int row = first(y, rows, cells.rows);
      const int row_end = std::max(row + 1, first(y + 1, rows, cells.rows));
      for (int x = 0; x < columns; ++x) {
        const int column = first(x, columns, cells.columns);
        const int column_end =
            std::max(column + 1, first(x + 1, columns, cells.columns));
        std::array<std::int64_t, 3> sum{};
        for (int r = row; r < row_end; ++r) {
          for (int c = column; c < column_end; ++c) {
            const std::uint8_t level =
                cells.levels[std::size_t(r) * cells.columns + c];
            const Color color =
                cells.masked && level == 0 ? kMasked : Cividis()[level];
            for (int k = 0; k < 3; ++k) sum[k] += color >> (16 - 8 * k) & 0xff;
          }
        }
        const std::int64_t count =
            std::int64_t{row_end - row} * (column_end - column);
        for (int k = 0; k < 3; ++k) {
          At(left + x, top + y)[k] =
              static_cast<std::uint8_t>((sum[k] + count / 2) / count);
        }
      }
    }
  }

  std::vector<std::uint8_t> TakePixels() { return std::move(pixels_); }

 private:
  static int Cut(double value, int count) {
    return static_cast<int>(std::clamp(std::floor(value), 0.0, count - 1.0));
  }
  std::uint8_t* At(int x, int y) {
    return &pixels_[3 * (std::size_t(y) * width_ + x)];
  }
  void Blend(int x, int y, float part, Color color) {
    if (part == 0) return;
    std::uint8_t* const pixel = At(x, y);
    for (int k = 0; k < 3; ++k) {
      const float wanted = static_cast<float>(color >> (16 - 8 * k) & 0xff);
      pixel[k] = static_cast<std::uint8_t>(
          std::lround(pixel[k] + part * (wanted - pixel[k])));
    }
  }

  int width_, height_;
  std::vector<std::uint8_t> pixels_;
};

}  // namespace

std::vector<std::uint8_t> Rasterize(const Scene& scene) {
  Canvas canvas(scene.width, scene.height);
  for (const Mark& mark : scene.marks) {
    if (const auto* const path = std::get_if<Path>(&mark)) {
      canvas.Draw(Dashes(path->points, path->dash), path->width, path->color);
    } else if (const auto* const label = std::get_if<Label>(&mark)) {
      canvas.Draw(*label);
    } else {
      canvas.Draw(std::get<Cells>(mark));
    }
  }
  return canvas.TakePixels();
}

}  // namespace posenc::plot
