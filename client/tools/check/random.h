// Seeded numbers for tensors and samples. Equal seeds give equal files on every
// machine. The generators of the C++ standard are also equal on every machine,
// but the distributions of the standard are not.

#pragma once

#include <cstdint>

namespace posenc::check {

// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number
// generators, OOPSLA 2014).
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t Next() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }

  // Returns a uniform number in [0, n), n > 0; the bias is below n / 2^64.
  std::int64_t Below(std::int64_t n) {
    return static_cast<std::int64_t>(Next() % static_cast<std::uint64_t>(n));
  }

  // Returns a nearly normal number: the sum of four uniform numbers, scaled to
  // mean 0 and variance 1.
  float Normal() {
    const std::uint64_t bits = Next();
    const int sum = static_cast<int>(bits & 0xffff) +
                    static_cast<int>(bits >> 16 & 0xffff) +
                    static_cast<int>(bits >> 32 & 0xffff) +
                    static_cast<int>(bits >> 48);
    // Sum of four uniform numbers of [0, 65535]: mean 131070, deviation
    // 65536 / sqrt(3).
    return static_cast<float>((sum - 131070) * (1.7320508075688772 / 65536));
  }

 private:
  std::uint64_t state_;
};

}  // namespace posenc::check
