// The search for the highest rate that a server sustains.

#pragma once

#include <functional>

namespace posenc::load {

struct Capacity {
  double rate = 0;    // highest rate that was sustained; 0: none
  double failed = 0;  // lowest rate that was not sustained; 0: none
  int steps = 0;
};

// Doubles the rate from `start` on until a rate fails. Then bisects between the
// highest rate that held and the lowest rate that failed. Ends when these two
// rates are within 5 % of each other, or after max_steps rates. If `start`
// itself fails, the lower end is 0 and bisection halves the rate. Every call of
// holds() is a measurement that takes the duration of a step.
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
