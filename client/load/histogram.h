// Counts of latencies in log-linear buckets, as HdrHistogram has them: every
// value is known to 3 significant digits (1 part in 1000), whatever its size.
//
// Values from 1 ns to an hour; longer ones count as an hour. Not thread-safe:
// one per thread, merged with Add. About 260 KB.

#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace posenc::load {

class Histogram {
 public:
  static constexpr std::int64_t kLowest = 1;
  static constexpr std::int64_t kHighest = 3'600'000'000'000;
  static constexpr int kDigits = 3;

  Histogram();

  void Record(std::int64_t nanos, std::int64_t count = 1);
  void Add(const Histogram& other);
  void Clear();

  std::int64_t count() const { return count_; }
  // As recorded, not rounded to a bucket; 0 where empty.
  std::int64_t min() const { return count_ ? min_ : 0; }
  std::int64_t max() const { return max_; }
  double Mean() const;

  // The smallest recorded value, rounded up to its bucket's last but never
  // beyond max(), that at least `percentile` per cent of the values do not
  // exceed. 0 where empty.
  std::int64_t Percentile(double percentile) const;

  // Values that do not exceed `nanos`, to its bucket.
  std::int64_t CountUpTo(std::int64_t nanos) const;

  // Buckets in order of value, the last ones being empty.
  const std::vector<std::int64_t>& counts() const { return counts_; }

  static std::size_t IndexOf(std::int64_t nanos);
  // First and last value of a bucket.
  static std::int64_t FirstOf(std::size_t index);
  static std::int64_t LastOf(std::size_t index);

 private:
  std::vector<std::int64_t> counts_;
  std::int64_t count_ = 0;
  std::int64_t min_ = kHighest;
  std::int64_t max_ = 0;
  double sum_ = 0;
};

}  // namespace posenc::load
