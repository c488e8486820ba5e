// Maps a distance between two positions to an index: T5's and DeBERTa's
// logarithmic buckets, Shaw's clipped distance, or Swin's index in a window of
// an image.
//
// A boundary between two buckets is computed exactly if rounding errors could
// change it.

#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"

namespace posenc::core {

struct T5Buckets {
  std::int32_t num_buckets = 0;   // 0 means 32
  std::int32_t max_distance = 0;  // 0 means 128
  bool bidirectional = false;
};

// The index clip(j - i, -left, right) + left (Shaw, arXiv:1803.02155).
struct ClippedDistance {
  std::int32_t left = 0;
  std::int32_t right = 0;
};

// The index clip(bucket(i - j) + span, 0, 2 * span - 1) (DeBERTa,
// arXiv:2006.03654). span is bucket_size, or max_position if bucket_size is 0.
struct DebertaBuckets {
  std::int32_t bucket_size = 0;
  std::int32_t max_position = 0;
};

// The row-major index of the differences i_a - j_a + extents[a] - 1 of all axes
// a (Swin, arXiv:2103.14030).
struct GridIndex {
  std::vector<std::int32_t> extents;
};

// Errors name fields relative to the proto messages, such as "max_distance".
absl::Status ValidateT5(const T5Buckets& buckets);
absl::Status ValidateClipped(const ClippedDistance& clip);
absl::Status ValidateDeberta(const DebertaBuckets& buckets);
absl::Status ValidateGridIndex(const GridIndex& grid);

// The classes and the function below return the index of a distance with
// |distance| <= 2^32. The arguments must be validated.

// T5's index of the distance i - j. The class precomputes the boundaries of the
// buckets.
class T5BucketIndex {
 public:
  explicit T5BucketIndex(const T5Buckets& buckets);
  std::int32_t num_buckets() const { return num_buckets_; }
  std::int32_t operator()(std::int64_t distance) const;

 private:
  std::int32_t num_buckets_;
  bool bidirectional_;
  std::vector<std::int64_t> first_;  // least |distance| of each bucket
};

// DeBERTa's index of the distance i - j. The index is in 0 .. 2 * span - 1.
class DebertaIndex {
 public:
  explicit DebertaIndex(const DebertaBuckets& buckets);
  std::int64_t span() const { return span_; }
  std::int64_t operator()(std::int64_t distance) const;

 private:
  std::int64_t span_;
  std::int64_t mid_;                // 0: no logarithmic buckets
  std::vector<std::int64_t> last_;  // last distances of buckets mid_, ...
};

// Shaw's index of the distance j - i. The index is in 0 .. left + right.
std::int64_t ClippedIndex(const ClippedDistance& clip, std::int64_t distance);

}  // namespace posenc::core
