// The times at which calls of an open loop are due. These times depend only on
// the rate, not on the times of answers, because users do not wait for each
// other.

#pragma once

#include <cstdint>
#include <random>

namespace posenc::load {

// Not thread-safe: every worker has its own object, with its share of the rate.
class Arrivals {
 public:
  // Plans `rate` calls per second from `first_nanos` on. The calls are evenly
  // spaced, or a Poisson process, whose gaps are independent and exponentially
  // distributed. Only a Poisson process has bursts, like the calls of many
  // independent users. Equal seeds give equal times.
  Arrivals(double rate, double first_nanos, bool poisson, std::uint64_t seed)
      : gap_(1e9 / rate),
        next_(first_nanos),
        poisson_(poisson),
        random_(seed),
        exponential_(1.0) {
    if (poisson_) next_ += gap_ * exponential_(random_);
  }

  // Returns the next call's time in nanoseconds after the start. Never
  // decreases.
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
