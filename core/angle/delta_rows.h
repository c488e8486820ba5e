// Cosines and sines of the angles k * step * frequency for small k. With them,
// the row of position p + k * step is computed from the row of position p: each
// new cosine or sine is a sum of products of cosines and sines for p and for k
// * step.
//
// Rows of consecutive positions are computed in two steps. First, anchors are
// computed from the base, which is a row that is evaluated directly. Then the
// rows from each anchor to the next are computed from this anchor.
//
//   base         |                                             |
//   anchors      |    |    |    |    |  --  (step kRows)       |    |
//   rows         ||||||||||||||||||||||||  --  (step 1)         ||||||||

#pragma once

#include <cstddef>

#include "core/angle/aligned_doubles.h"
#include "core/angle/quarter_turns.h"

namespace posenc::core {

class DeltaRows {
 public:
  // Evaluating a row costs 10 times as much as computing it from another row
  // (AVX-512). Evaluating every anchor would add a third to the cost of its 32
  // rows. So only one anchor in 32, the base, is evaluated, and the other
  // anchors are computed from the base. 32 rows of 64 pairs take 32 KiB, which
  // stay in or near the first-level cache.
  static constexpr std::size_t kRows = 32;
  // Rows of wider encodings are evaluated one by one, because their two
  // DeltaRows, of steps 1 and kRows, would take more than half a MiB.
  static constexpr std::size_t kMaxPairs = 512;
  // Size in bytes of a DeltaRows with `pairs` pairs.
  static std::size_t Bytes(std::size_t pairs);

  // The number of doubles from one row of cosines or sines to the next. This
  // number is a multiple of 16, because kernels read whole vectors.
  static constexpr std::size_t Pitch(std::size_t pairs) {
    return (pairs + 15) / 16 * 16;
  }

  // Bounds the difference between a float64 result and the direct evaluation,
  // both before rounding to float32. The bound is relative to the factor by
  // which cosines and sines are multiplied, and is valid for angles of at most
  // kMaxRadians. The bound has these terms, in units of 2^-52:
  // - The cosines and sines of the base (times the factor), of the anchor's
  //   delta and of the row's delta are each off by at most 1 (2 ulp). So each
  //   complex number cosine + i sine is off by at most sqrt(2). The result is
  //   the product of three of these complex numbers. Each number has magnitude
  //   1, so the errors of the three numbers add up to 3 sqrt(2).
  // - Each of the two products has a rounding error of at most 1 in each
  //   component, because the magnitudes of its terms add up to at most 1. So
  //   the rounding error of the first product is at most sqrt(2) as a complex
  //   number.
  // - The direct value itself is off by at most 1. If the factor is not 1, the
  //   direct value and the base are rounded once more. This rounding adds 1/2
  //   for the direct value, and sqrt(1/2) for the base as a complex number.
  // The sum of these errors is less than 9.
  static constexpr double kError = 9 * 0x1p-52;

  // The reduction of an angle has an error of up to 2^-93 of the angle
  // (angle/quarter_turns.h). Beyond kMaxRadians, this error comes close to
  // float64's last bit: for angles of 2^50, the sums were off by 100 * 2^-52.
  static constexpr double kMaxRadians = 0x1p40;

  DeltaRows(const QuarterTurnArrays& frequencies, std::size_t step);

  std::size_t pitch() const { return pitch_; }
  // Returns row k. The row's cosines begin at element 0, and its sines at
  // element pitch().
  const double* Row(std::size_t k) const {
    return rows_.data() + 2 * k * pitch_;
  }

 private:
  std::size_t pitch_;
  AlignedDoubles rows_;  // [kRows][2][pitch]
};

}  // namespace posenc::core
