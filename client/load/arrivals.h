// When the calls of an open loop are due, whatever becomes of them.

#pragma once

#include <cstdint>
#include <random>

namespace posenc::load {

class Arrivals {
 public:
  // `rate` per second, evenly spaced from `first_nanos` or at random (Poisson).
  Arrivals(double rate, double first_nanos, bool poisson, std::uint64_t seed)
      : gap_(1e9 / rate),
        next_(first_nanos),
        poisson_(poisson),
        random_(seed),
        exponential_(1.0) {
    if (poisson_) next_ += gap_ * exponential_(random_);
  }

  // Nanoseconds after the start, never decreasing.
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
