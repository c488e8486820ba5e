// Frequencies as classes that compute them in float32 have them.

#pragma once

#include <cstdint>
#include <vector>

namespace posenc::core::interpretation {

// 1 / theta^exponent: base, power and reciprocal rounded to float32. The power
// is rounded correctly, which torch's is for the widths and bases of nearly all
// known towers (tests/parity/towers.py).
double Float32Frequency(double theta, float exponent);

// The frequencies of the exponents i / n, i = first, first + step, ... below n.
std::vector<double> Float32Frequencies(double theta, std::int64_t n,
                                       std::int64_t first, std::int64_t step);

}  // namespace posenc::core::interpretation
