#include "client/tools/plot/colors.h"

#include <algorithm>
#include <cmath>

namespace posenc::plot {
namespace {

// The colours 0, 8, ... 248 and 255 of Cividis().
constexpr std::array<Color, 33> kAnchors = {
    0x00224e, 0x00285b, 0x002e6a, 0x053371, 0x1a386f, 0x273e6e, 0x32436d,
    0x3b496c, 0x434e6c, 0x4b546c, 0x535a6d, 0x5a5f6e, 0x61656f, 0x686a71,
    0x6f7073, 0x767676, 0x7d7c78, 0x848279, 0x8c8878, 0x938e78, 0x9b9476,
    0xa39a74, 0xaba072, 0xb4a76f, 0xbcae6c, 0xc4b468, 0xcdbb63, 0xd5c25e,
    0xdec958, 0xe7d150, 0xf0d846, 0xf9e03a, 0xfee838};

std::array<Color, 256> Interpolated() {
  std::array<Color, 256> colors{};
  for (int i = 0; i < 256; ++i) {
    const int below = i / 8;
    const int width = below == 31 ? 7 : 8;
    for (int shift = 0; shift <= 16; shift += 8) {
      const int a = static_cast<int>(kAnchors[below] >> shift & 0xff);
      const int b = static_cast<int>(kAnchors[below + 1] >> shift & 0xff);
      const double part = static_cast<double>(i % 8) / width;
      colors[i] |= static_cast<Color>(std::lround(a + part * (b - a))) << shift;
    }
  }
  return colors;
}

}  // namespace

Color CurveColor(std::size_t i) {
  constexpr std::array<Color, kLooks> kColors = {0x0072b2, 0xd55e00, 0x009e73,
                                                 0xcc79a7, 0x000000, 0xe69f00,
                                                 0x56b4e9, 0x767676};
  return kColors[i % kLooks];
}

const char* CurveDash(std::size_t i) {
  constexpr std::array<const char*, kLooks> kDashes = {
      "", "9 4", "2 4", "9 4 2 4", "5 3", "14 4", "14 4 2 4", "1 3"};
  return kDashes[i % kLooks];
}

const std::array<Color, 256>& Cividis() {
  static const std::array<Color, 256> kColors = Interpolated();
  return kColors;
}

std::uint8_t Level(double value, double low, double high) {
  const double part = (value / 2 - low / 2) / (high / 2 - low / 2);
  if (!(part > 0)) return 0;
  return static_cast<std::uint8_t>(std::lround(255 * std::min(part, 1.0)));
}

}  // namespace posenc::plot
