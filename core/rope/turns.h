// Frequencies in quarter turns, split for exact range reduction.

#pragma once

namespace posenc::core {

// hi + mid + lo; hi and mid have at most 21 significant bits, so that their
// products with numbers of 32 significant bits are exact (see
// simd::TrigRow). mid and lo may have the other sign.
struct Turns {
  double hi, mid, lo;
};

// inv_freq * 2 / pi with a relative error of at most 2^-94. inv_freq is 0 or
// of magnitude 2^-900 .. 2^900.
Turns SplitTurns(double inv_freq);

}  // namespace posenc::core
