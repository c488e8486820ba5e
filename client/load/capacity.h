// The highest rate that a server holds.

#pragma once

#include <functional>

namespace posenc::load {

struct Capacity {
  double rate = 0;    // the highest that held; 0: none did
  double failed = 0;  // the lowest that did not; 0: none was found
  int steps = 0;
};

// Doubles from `start` while holds(rate), then halves what lies between, until
// it is within 5 % or max_steps were made. Halves from `start` where that does
// not hold.
inline Capacity FindCapacity(double start, int max_steps,
                             const std::function<bool(double rate)>& holds) {
  Capacity found;
  double rate = start;
  while (found.steps < max_steps) {
    ++found.steps;
    (holds(rate) ? found.rate : found.failed) = rate;
    if (found.failed == 0) {
      rate *= 2;
    } else if (found.failed - found.rate <= 0.05 * found.failed) {
      break;
    } else {
      rate = (found.rate + found.failed) / 2;
    }
  }
  return found;
}

}  // namespace posenc::load
