#include "core/rope/kept.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/angle/quarter_turns.h"

namespace posenc::core {
namespace {

constexpr std::int64_t kDense = 4096;  // all distances up to this are tried
constexpr int kSpaced = 4096;          // number of distances beyond kDense

// Returns one frequency for each pair of each head. An angle can be a sum over
// axes. If all axes are at position r, the angle is r times the sum of the
// pair's frequencies.
std::vector<double> Frequencies(const ResolvedRope& rope) {
  const auto pairs = static_cast<std::size_t>(rope.pairs());
  const auto axes = static_cast<std::size_t>(rope.frequency_axes);
  if (rope.spec.nope || pairs == 0) return {};
  const double sign = rope.spec.reverse ? -1 : 1;
  std::vector<double> frequencies;
  for (std::size_t row = 0; row < rope.inv_freq.size(); row += axes * pairs) {
    for (std::size_t i = 0; i < pairs; ++i) {
      long double sum = 0;
      for (std::size_t axis = 0; axis < axes; ++axis) {
        sum += rope.inv_freq[row + axis * pairs + i];
      }
      // A pair does not rotate if the frequencies of its axes almost cancel
      // each other.
      const bool still = std::abs(sum) < kMinFrequency;
      frequencies.push_back(still ? 0 : sign * static_cast<double>(sum));
    }
  }
  return frequencies;
}

// Returns the frequencies of a, then those of b. Zeros extend the shorter list
// to the length of the longer list.
std::vector<double> Joined(std::vector<double> a, std::vector<double> b) {
  const std::size_t pairs = std::max(a.size(), b.size());
  a.resize(pairs);
  b.resize(pairs);
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

}  // namespace

ResolvedRope Bare(const std::vector<double>& frequencies) {
  ResolvedRope rope;
  rope.spec.rotary_dim = static_cast<std::int32_t>(2 * frequencies.size());
  rope.spec.pairing = Pairing::kHalfSplit;
  rope.inv_freq = frequencies;
  return rope;
}

std::vector<std::int64_t> TriedDistances(std::int64_t length) {
  std::vector<std::int64_t> distances;
  for (std::int64_t r = 1; r <= std::min(length, kDense); ++r) {
    distances.push_back(r);
  }
  if (length <= kDense) return distances;
  const double ratio =
      static_cast<double>(length) / static_cast<double>(kDense);
  for (int step = 1; step < kSpaced; ++step) {
    const auto r = static_cast<std::int64_t>(
        std::llround(kDense * std::pow(ratio, step / double{kSpaced})));
    if (r > distances.back() && r < length) distances.push_back(r);
  }
  distances.push_back(length);
  return distances;
}

Kept::Kept(const ResolvedRope& reference, const ResolvedRope& other,
           StopAsked stop)
    : Kept(Frequencies(reference), Frequencies(other)) {
  stop_ = std::move(stop);
}

Kept::Kept(std::vector<double> reference, std::vector<double> other)
    : pairs_(std::max(reference.size(), other.size())),
      evaluator_(Bare(Joined(reference, other)), Direction::kForward,
                 TensorRole::kKey, nullptr),
      row_(4 * pairs_) {
  reference.resize(pairs_);
  other.resize(pairs_);
  equal_ = reference == other;
}

double Kept::At(std::int64_t distance) {
  if (equal_ || distance == 0 || !status_.ok()) return 1;
  if (stop_) status_ = stop_();
  const auto position = static_cast<double>(distance);
  evaluator_.Row(&position, row_.data());
  const double* const cos = row_.data();
  const double* const sin = row_.data() + 2 * pairs_;
  long double sum = 0;
  for (std::size_t i = 0; i < pairs_; ++i) {
    sum += static_cast<long double>(cos[i]) * cos[pairs_ + i] +
           static_cast<long double>(sin[i]) * sin[pairs_ + i];
  }
  return static_cast<double>(sum / static_cast<long double>(pairs_));
}

std::int64_t Kept::FirstDistance(std::int64_t length) {
  if (equal_) return -1;
  for (const std::int64_t r : TriedDistances(length)) {
    if (At(r) < kKeptLimit) return r;
    if (!status_.ok()) break;
  }
  return -1;
}

double Kept::Least(std::int64_t length) {
  double least = 1;
  if (equal_) return least;
  for (const std::int64_t r : TriedDistances(length)) {
    least = std::min(least, At(r));
    if (!status_.ok()) break;
  }
  return least;
}

}  // namespace posenc::core
