// The times at which calls of an open loop are due. They follow from the rate
// alone, not from when answers come: users do not wait for each other either.

#pragma once

#include <cstdint>
#include <random>

namespace posenc::load {

// Not thread-safe: every worker has its own, with its share of the rate.
class Arrivals {
 public:
  // `rate` calls per second, from `first_nanos` on: evenly spaced, or as a
  // Poisson process, whose gaps are independent and exponentially distributed.
  // That is how calls of many independent users arrive, in bursts, which even
  // spacing never shows to a server. Equal seeds give equal times.
  Arrivals(double rate, double first_nanos, bool poisson, std::uint64_t seed)
      : gap_(1e9 / rate),
        next_(first_nanos),
        poisson_(poisson),
        random_(seed),
        exponential_(1.0) {
    if (poisson_) next_ += gap_ * exponential_(random_);
  }

  // The next call's time in nanoseconds after the start. Never decreases.
  std::int64_t Next() {
    const double due = next_;
    next_ += poisson_ ? gap_ * exponential_(random_) : gap_;
    return static_cast<std::int64_t>(due);
  }

 private:
  const double gap_;
  double next_;
  const bool poisson_;
  std::mt19937_64 random_;
  std::exponential_distribution<double> exponential_;
};

}  // namespace posenc::load
