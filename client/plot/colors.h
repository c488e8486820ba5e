// Colours that people with any colour vision tell apart, and dashes that need
// no colour at all.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace posenc::plot {

// 0xRRGGBB.
using Color = std::uint32_t;

inline constexpr Color kInk = 0x1a1a1a;
inline constexpr Color kGrid = 0xdddddd;

// The look of curve i: Okabe and Ito's colours (jfly.uni-koeln.de/color) with a
// grey for the yellow, which is too pale on white, and a dash pattern of its
// own. They repeat after kLooks.
inline constexpr std::size_t kLooks = 8;
Color CurveColor(std::size_t i);
std::vector<double> CurveDash(std::size_t i);

// The map "cividis" from dark blue to yellow, whose lightness grows evenly
// (Nunez, Anderton, Renslow 2018, doi:10.1371/journal.pone.0199239): every
// eighth of its 256 colours, and between them a straight line, which is nowhere
// further than 5 of 255 from it.
const std::array<Color, 256>& Cividis();

// The index into Cividis() of a value in [low, high]; values beyond are cut,
// and NaN is the lowest. low < high.
std::uint8_t Level(double value, double low, double high);

// The colour of cells that have no finite value: a grey that is lighter than
// all of Cividis()'s.
inline constexpr Color kMasked = 0xdddddd;

}  // namespace posenc::plot
