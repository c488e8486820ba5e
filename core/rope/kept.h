// How much of an attention score is left if keys or queries are rotated by
// another encoding than the one that the model was trained with.
//
// For q and k with as much energy in each of n pairs, the share of a score at
// distance r that survives is
//
//   kept(r) = mean over pairs of cos(r |w_i - w'_i|)
//
// with w the frequencies of the reference and w' the other's. Several axes: all
// stand at r. It reproduces what people measured (mlx-vlm PR 1710: 0.959,
// 0.757, 0.619 at distances 1000, 8192, 20000; the formula gives 0.963, 0.769,
// 0.627).
//
// It is evaluated as cos(r w) cos(r w') + sin(r w) sin(r w') from exactly
// reduced angles, so that its error does not grow with the distance: at most
// 1e-15 against 50-digit arithmetic on all of tests/data/kept.json, distances
// to 2^31.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "core/rope/cos_sin_evaluator.h"
#include "core/rope/frequencies.h"

namespace posenc::core {

// Below this share of a score a difference counts as an error.
inline constexpr double kKeptLimit = 0.9;

// Asked now and then during long work, whose end its error is.
using StopAsked = std::function<absl::Status()>;

// Not for several threads at once: it has scratch memory.
class Kept {
 public:
  // Pairs that one of the two does not rotate count as frequency 0 there. A
  // reversed encoding has negative frequencies. NoPE has none.
  // `stop`, if any, is asked at each distance.
  Kept(const ResolvedRope& reference, const ResolvedRope& other,
       StopAsked stop = nullptr);
  // Frequencies by pair, each 0 or of magnitude kMinFrequency to kMaxFrequency
  // (core/angle/quarter_turns.h); the shorter list is continued by zeros.
  Kept(std::vector<double> reference, std::vector<double> other);

  // At distance 0 to 2^31; 1 if there are no pairs.
  double At(std::int64_t distance);

  // The least distance in [0, length] at which less than kKeptLimit is kept,
  // and -1 if there is none: each distance to 4096 is tried, then 4096 that are
  // spaced evenly on a logarithmic scale up to `length`, which is one of them.
  std::int64_t FirstDistance(std::int64_t length);

  // The least that is kept at any of these distances.
  double Least(std::int64_t length);

  // True if the frequencies are the same.
  bool equal() const { return equal_; }

  // The error of `stop`, once it had one. All answers are then void.
  const absl::Status& status() const { return status_; }

 private:
  // The reference's frequencies and then as many of the other.
  explicit Kept(const std::vector<double>& joined);

  std::size_t pairs_;
  bool equal_;
  StopAsked stop_;
  absl::Status status_;
  CosSinEvaluator evaluator_;
  std::vector<double> row_;  // scratch: cosines, then sines, of `joined`
};

// The distances that FirstDistance tries, ascending: 1 .. length.
std::vector<std::int64_t> TriedDistances(std::int64_t length);

}  // namespace posenc::core
