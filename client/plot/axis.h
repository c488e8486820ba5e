// Axes: where a value stands between two pixels, and which values get a tick.

#pragma once

#include <string>
#include <vector>

namespace posenc::plot {

// Maps [low, high] to pixels, along a line or a logarithm. low < high, and both
// are positive on a logarithmic axis.
struct Scale {
  bool log = false;
  double low = 0, high = 1;
  double from = 0, to = 1;  // pixels of low and high
  bool whole = false;       // ticks at whole numbers alone

  double At(double value) const;
};

struct Tick {
  double value = 0;
  std::string text;
};

// About five multiples of 1, 2 or 5 times a power of ten that lie in the scale;
// on a logarithmic one powers of ten, with 2 and 5 between them if they are
// few, and every second or third alone if they are many.
std::vector<Tick> Ticks(const Scale& scale);

// At most six digits: "0.001", "4096", "1e6".
std::string TickText(double value);

}  // namespace posenc::plot
