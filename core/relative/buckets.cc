#include "core/relative/buckets.h"

#include <algorithm>
#include <cstdlib>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/error.h"
#include "core/relative/geometric_point.h"

namespace posenc::core {
namespace {

constexpr std::int32_t kDefaultBuckets = 32;       // T5's
constexpr std::int32_t kDefaultMaxDistance = 128;  // T5's

// Bounds the memory of precomputed boundaries. Models have at most a few
// hundred buckets.
constexpr std::int32_t kMaxBuckets = 16384;

constexpr std::int64_t kMaxIndex = std::numeric_limits<std::int32_t>::max();

std::int32_t NumBuckets(const T5Buckets& buckets) {
  return buckets.num_buckets == 0 ? kDefaultBuckets : buckets.num_buckets;
}

std::int32_t MaxDistance(const T5Buckets& buckets) {
  return buckets.max_distance == 0 ? kDefaultMaxDistance : buckets.max_distance;
}

}  // namespace

absl::Status ValidateT5(const T5Buckets& buckets) {
  const std::int32_t count = NumBuckets(buckets);
  const std::int32_t fewest = buckets.bidirectional ? 4 : 2;
  if (count < fewest || count > kMaxBuckets) {
    return MustBe(
        "num_buckets", count,
        absl::StrCat(fewest, " .. ", kMaxBuckets,
                     buckets.bidirectional
                         ? ", and half of them are for keys after the query"
                         : ""));
  }
  if (buckets.bidirectional && count % 2 != 0) {
    return FieldInvalid("num_buckets",
                        absl::StrCat(count,
                                     " is odd; bidirectional buckets have one "
                                     "half for each side"));
  }
  const std::int32_t exact = count / fewest;
  if (MaxDistance(buckets) <= exact) {
    return FieldInvalid(
        "max_distance",
        absl::StrCat(
            MaxDistance(buckets), ", but the first ", exact, " of ", count,
            " buckets hold one distance each; must be at least ", exact + 1));
  }
  return absl::OkStatus();
}

absl::Status ValidateClipped(const ClippedDistance& clip) {
  if (clip.left < 0) {
    return MustBe("left", clip.left, ">= 0");
  }
  if (clip.right < 0) {
    return MustBe("right", clip.right, ">= 0");
  }
  const std::int64_t greatest = std::int64_t{clip.left} + clip.right;
  if (greatest == 0) {
    return FieldRequired("left",
                         "left and right are 0, which leaves one index; set "
                         "how far they reach");
  }
  if (greatest > kMaxIndex) {
    return FieldInvalid("left",
                        absl::StrCat(clip.left, ", and right is ", clip.right,
                                     ": the greatest index is ", greatest,
                                     "; int32 indices end at ", kMaxIndex));
  }
  return absl::OkStatus();
}

absl::Status ValidateDeberta(const DebertaBuckets& buckets) {
  // The greatest index is 2 * span - 1.
  constexpr std::int32_t kMaxSpan = 1 << 30;
  if (buckets.max_position == 0) {
    return FieldRequired("max_position",
                         "is 0; must be positive; DeBERTa has 512");
  }
  if (buckets.max_position < 0) {
    return MustBe("max_position", buckets.max_position, "positive");
  }
  if (buckets.bucket_size == 0) {
    if (buckets.max_position <= kMaxSpan) return absl::OkStatus();
    return FieldInvalid("max_position",
                        absl::StrCat(buckets.max_position,
                                     "; the greatest index, 2 * max_position - "
                                     "1, must be below 2^31"));
  }
  if (buckets.bucket_size < 2 || buckets.bucket_size > kMaxBuckets) {
    return MustBe("bucket_size", buckets.bucket_size,
                  absl::StrCat("2 .. ", kMaxBuckets, ", or 0 for none"));
  }
  const std::int32_t mid = buckets.bucket_size / 2;
  if (buckets.max_position <= mid + 1) {
    return FieldInvalid(
        "max_position",
        absl::StrCat(buckets.max_position, ", but bucket_size ",
                     buckets.bucket_size, " keeps distances up to ", mid,
                     " as they are; must be at least ", mid + 2));
  }
  return absl::OkStatus();
}

absl::Status ValidateGridIndex(const GridIndex& grid) {
  if (grid.extents.empty()) {
    return FieldRequired("extents", "is empty; give the cells of each axis");
  }
  std::int64_t indices = 1;
  for (std::size_t a = 0; a < grid.extents.size(); ++a) {
    const std::int32_t extent = grid.extents[a];
    if (extent < 1) {
      return MustBe(absl::StrCat("extents[", a, "]"), extent, "at least 1");
    }
    // The product cannot overflow, because `indices` is below 2^31, and the
    // other factor is below 2^32.
    indices *= 2 * std::int64_t{extent} - 1;
    if (indices > kMaxIndex) {
      return FieldInvalid(
          "extents",
          absl::StrCat("[", absl::StrJoin(grid.extents, ", "), "] has ",
                       a + 1 < grid.extents.size() ? "at least " : "", indices,
                       " differences; int32 indices end at ", kMaxIndex));
    }
  }
  return absl::OkStatus();
}

T5BucketIndex::T5BucketIndex(const T5Buckets& buckets)
    : num_buckets_(NumBuckets(buckets)), bidirectional_(buckets.bidirectional) {
  const std::int32_t side = bidirectional_ ? num_buckets_ / 2 : num_buckets_;
  const std::int32_t exact = side / 2;
  for (std::int32_t b = 0; b < exact; ++b) first_.push_back(b);
  for (std::int32_t t = 0; t < side - exact; ++t) {
    const GeometricPoint point =
        FindGeometricPoint(exact, MaxDistance(buckets), t, side - exact);
    first_.push_back(point.exact ? point.floor : point.floor + 1);
  }
}

std::int32_t T5BucketIndex::operator()(std::int64_t distance) const {
  const bool after = distance < 0;
  const std::int64_t n = bidirectional_ ? std::llabs(distance)
                                        : std::max<std::int64_t>(distance, 0);
  const auto bucket = static_cast<std::int32_t>(
      std::upper_bound(first_.begin(), first_.end(), n) - first_.begin() - 1);
  return bidirectional_ && after ? bucket + num_buckets_ / 2 : bucket;
}

DebertaIndex::DebertaIndex(const DebertaBuckets& buckets)
    : span_(buckets.bucket_size == 0 ? buckets.max_position
                                     : buckets.bucket_size),
      mid_(buckets.bucket_size / 2) {
  if (mid_ == 0) return;
  if (mid_ == 1) {
    // The formula has the factor mid - 1, which is 0, so all distances above
    // mid share one bucket.
    last_.push_back(std::numeric_limits<std::int64_t>::max());
    return;
  }
  for (std::int64_t t = 0; t <= span_ - mid_; ++t) {
    last_.push_back(
        FindGeometricPoint(mid_, buckets.max_position - 1, t, mid_ - 1).floor);
  }
}

std::int64_t DebertaIndex::operator()(std::int64_t distance) const {
  std::int64_t bucket = distance;
  const std::int64_t r = std::llabs(distance);
  if (mid_ != 0 && r > mid_) {
    const std::int64_t magnitude =
        mid_ +
        (std::lower_bound(last_.begin(), last_.end(), r) - last_.begin());
    bucket = distance < 0 ? -magnitude : magnitude;
  }
  return std::clamp<std::int64_t>(bucket + span_, 0, 2 * span_ - 1);
}

std::int64_t ClippedIndex(const ClippedDistance& clip, std::int64_t distance) {
  return std::clamp<std::int64_t>(distance, -std::int64_t{clip.left},
                                  clip.right) +
         clip.left;
}

}  // namespace posenc::core
