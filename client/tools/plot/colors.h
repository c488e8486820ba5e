// Colours that people with any colour vision can distinguish, and dashes that
// need no colour.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace posenc::plot {

// 0xRRGGBB.
using Color = std::uint32_t;

inline constexpr Color kInk = 0x1a1a1a;
inline constexpr Color kGrid = 0xdddddd;

// Colour and dash pattern of curve i: Okabe and Ito's colours
// (jfly.uni-koeln.de/color), with grey instead of yellow, which is too pale on
// white. Colours and dash patterns repeat after kLooks curves.
inline constexpr std::size_t kLooks = 8;
Color CurveColor(std::size_t i);
const char* CurveDash(std::size_t i);

// The map "cividis" from dark blue to yellow, with evenly growing lightness
// (Nunez, Anderton, Renslow 2018, doi:10.1371/journal.pone.0199239). The table
// in colors.cc has every eighth of its 256 colours; the other colours are
// interpolated linearly, with errors of at most 5 of 255.
const std::array<Color, 256>& Cividis();

// Returns the index into Cividis() of a value in [low, high]; other values are
// clamped, and NaN counts as the lowest value. low < high.
std::uint8_t Level(double value, double low, double high);

}  // namespace posenc::plot
