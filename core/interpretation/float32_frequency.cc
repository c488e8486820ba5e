#include "core/interpretation/float32_frequency.h"

#include <cmath>

namespace posenc::core::interpretation {

double Float32Frequency(double theta, float exponent) {
  const auto power = static_cast<float>(
      std::pow(static_cast<long double>(static_cast<float>(theta)),
               static_cast<long double>(exponent)));
  return 1.0F / power;
}

std::vector<double> Float32Frequencies(double theta, std::int64_t n,
                                       std::int64_t first, std::int64_t step) {
  std::vector<double> frequencies;
  for (std::int64_t i = first; i < n; i += step) {
    frequencies.push_back(
        Float32Frequency(theta, static_cast<float>(i) / static_cast<float>(n)));
  }
  return frequencies;
}

}  // namespace posenc::core::interpretation
