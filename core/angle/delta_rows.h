// Cosines and sines of the angles k * frequency for small k, by which rows of
// consecutive positions follow from one: cos(p + k) and sin(p + k) are sums of
// products of those of p and of k.

#pragma once

#include <cstddef>
#include <vector>

#include "core/angle/quarter_turns.h"

namespace posenc::core {

class DeltaRows {
 public:
  // A row of its own costs 7 times one that follows from another (AVX-512), so
  // that at 32 rows the first adds a fifth. 32 rows of 64 pairs are 32 KiB,
  // which stay in L1 or close to it.
  static constexpr std::size_t kRows = 32;
  // Of wider encodings, rows are evaluated one by one: these would take
  // megabytes.
  static constexpr std::size_t kMaxPairs = 512;
  // Bytes of an encoding with so many pairs.
  static std::size_t Bytes(std::size_t pairs);

  // A float64 result differs by less from what the direct evaluation gives
  // before it rounds to float32. Cosines and sines of p and k are within 2 ulp,
  // 2^-52: their products carry 4 sqrt(1/2) of that, and rounding, at most
  // three times, adds 3 * 2^-54 .. 2^-53; the direct value is within 2^-52
  // itself. Together less than 2^-49, of a factor of 1.
  static constexpr double kError = 0x1p-49;

  explicit DeltaRows(const QuarterTurnArrays& frequencies);

  std::size_t pitch() const { return pitch_; }
  const double* data() const { return rows_.data(); }  // [kRows][2][pitch]

 private:
  std::size_t pitch_;
  std::vector<double> rows_;
};

}  // namespace posenc::core
