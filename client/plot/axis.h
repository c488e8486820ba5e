// Axes: the place of a value between two pixels, and the values of ticks.

#pragma once

#include <string>
#include <vector>

namespace posenc::plot {

// Maps [low, high] to pixels, linearly or by the logarithm. low < high; both
// must be positive on a logarithmic axis.
struct Scale {
  bool log = false;
  double low = 0, high = 1;
  double from = 0, to = 1;  // pixels of low and high
  bool whole = false;       // ticks only at whole numbers

  double At(double value) const;
};

struct Tick {
  double value = 0;
  std::string text;
};

// Returns about five multiples of 1, 2 or 5 times a power of ten in the scale.
// On a logarithmic scale: powers of ten, with 2 and 5 between them if there are
// few, and only every second or third if there are many.
std::vector<Tick> Ticks(const Scale& scale);

}  // namespace posenc::plot
