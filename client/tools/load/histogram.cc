#include "client/tools/load/histogram.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace posenc::load {
namespace {

// Three digits need 2 * 10^3 buckets of width 1, so 2^11 are enough. Every
// further power of two has 2^10 buckets, which are twice as wide as the buckets
// before.
constexpr int kBits = 11;
constexpr std::int64_t kHalf = std::int64_t{1} << (kBits - 1);

// Returns the binary logarithm of the width of the bucket that has `nanos`: the
// number of bits of `nanos` beyond 11.
int ShiftOf(std::int64_t nanos) {
  return std::max(
      0, static_cast<int>(std::bit_width(static_cast<std::uint64_t>(nanos))) -
             kBits);
}

// Returns the binary logarithm of the width of a bucket. The first 2048 buckets
// have width 1. Every further width has 1024 buckets.
int ShiftOfIndex(std::size_t index) {
  return std::max(0, static_cast<int>(index / kHalf) - 1);
}

}  // namespace

std::size_t Histogram::IndexOf(std::int64_t nanos) {
  const int shift = ShiftOf(nanos);
  return static_cast<std::size_t>(shift * kHalf + (nanos >> shift));
}

std::int64_t Histogram::FirstOf(std::size_t index) {
  const int shift = ShiftOfIndex(index);
  return (static_cast<std::int64_t>(index) - shift * kHalf) << shift;
}

std::int64_t Histogram::LastOf(std::size_t index) {
  return FirstOf(index) + (std::int64_t{1} << ShiftOfIndex(index)) - 1;
}

// Makes buckets up to the next power of two above kHighest, like HdrHistogram.
Histogram::Histogram() : counts_((ShiftOf(kHighest) + 2) * kHalf) {}

void Histogram::Record(std::int64_t nanos, std::int64_t count) {
  const std::int64_t value = std::clamp(nanos, kLowest, kHighest);
  counts_[IndexOf(value)] += count;
  count_ += count;
  min_ = std::min(min_, value);
  max_ = std::max(max_, value);
  sum_ += static_cast<double>(value) * static_cast<double>(count);
}

void Histogram::Add(const Histogram& other) {
  if (other.count_ == 0) return;
  const std::size_t end = IndexOf(other.max_) + 1;
  for (std::size_t i = IndexOf(other.min_); i < end; ++i) {
    counts_[i] += other.counts_[i];
  }
  count_ += other.count_;
  min_ = std::min(min_, other.min_);
  max_ = std::max(max_, other.max_);
  sum_ += other.sum_;
}

double Histogram::Mean() const {
  return count_ ? sum_ / static_cast<double>(count_) : 0;
}

std::int64_t Histogram::Percentile(double percentile) const {
  if (count_ == 0) return 0;
  // The factor 1 - 10^-12 corrects rounding errors: in double, 99.9 / 100 *
  // 1000 is a little more than 999, and would select the 1000th value instead
  // of the 999th.
  const double wanted = percentile / 100 * static_cast<double>(count_);
  const std::int64_t rank = std::clamp<std::int64_t>(
      static_cast<std::int64_t>(std::ceil(wanted * (1 - 1e-12))), 1, count_);
  std::int64_t seen = 0;
  for (std::size_t i = IndexOf(min_); i < counts_.size(); ++i) {
    seen += counts_[i];
    if (seen >= rank) return std::min(LastOf(i), max_);
  }
  return max_;
}

}  // namespace posenc::load
