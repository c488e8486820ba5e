// Counts of latencies in log-linear buckets like HdrHistogram's. Every value,
// microseconds or seconds, has 3 significant digits (1 part in 1000).
//
//   values (ns)        width of a bucket    buckets
//   0 ... 2047         1                    2048
//   2048 ... 4095      2                    1024
//   4096 ... 8191      4                    1024
//   ...                ...                  ...
//
// The width of a bucket is at most 2^-10 of its values. Bucket i of width 2^k
// starts at (i - 1024 k) 2^k, so that a shift and a sum convert a value to its
// bucket and back.
//
// Values are from 1 ns to an hour; larger values count as an hour. A histogram
// takes about 260 KB. Not thread-safe: each thread has its own histogram, and
// Add() merges them.

#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace posenc::load {

class Histogram {
 public:
  static constexpr std::int64_t kLowest = 1;
  static constexpr std::int64_t kHighest = 3'600'000'000'000;

  Histogram();

  void Record(std::int64_t nanos, std::int64_t count = 1);
  void Add(const Histogram& other);

  std::int64_t count() const { return count_; }
  // Return exact recorded values, which are not rounded to a bucket; 0 if the
  // histogram is empty.
  std::int64_t min() const { return count_ ? min_ : 0; }
  std::int64_t max() const { return max_; }
  double Mean() const;

  // Returns the smallest recorded value v such that `percentile` per cent of
  // the values are at most v. v is rounded up to the last value of its bucket,
  // but not above max(). Returns 0 if the histogram is empty.
  std::int64_t Percentile(double percentile) const;

  // Returns all buckets, in the order of their values.
  const std::vector<std::int64_t>& counts() const { return counts_; }

  // Return the bucket of a value, and the first and last value of a bucket.
  static std::size_t IndexOf(std::int64_t nanos);
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
