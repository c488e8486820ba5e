// Bucket numbers of T5 and DeBERTa at every distance, and the boundaries
// between buckets, checked with integers.

#include "core/relative/buckets.h"

#include <gtest/gtest.h>
#include <quadmath.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <vector>

#include "core/relative/geometric_point.h"
#include "tests/fixtures/core/relative.h"

namespace posenc::core {
namespace {

constexpr std::int64_t kFar = std::int64_t{1} << 32;

std::int64_t PowerMod(std::int64_t base, std::int64_t n, std::int64_t prime) {
  __int128 product = 1;
  for (__int128 square = base % prime; n > 0; n /= 2) {
    if (n % 2 != 0) product = product * square % prime;
    square = square * square % prime;
  }
  return static_cast<std::int64_t>(product);
}

// Returns whether x^k * e^t = m^t * e^k, by residues: for a wrong result, two
// primes near 2^61 and 2^31 would both have to divide the difference.
bool SamePower(std::int64_t x, std::int64_t k, std::int64_t m, std::int64_t t,
               std::int64_t e) {
  for (const std::int64_t prime :
       {(std::int64_t{1} << 61) - 1, (std::int64_t{1} << 31) - 1}) {
    const auto side = [&](std::int64_t a, std::int64_t n, std::int64_t b,
                          std::int64_t l) {
      return static_cast<__int128>(PowerMod(a, n, prime)) *
             PowerMod(b, l, prime) % prime;
    };
    if (side(x, k, e, t) != side(m, t, e, k)) return false;
  }
  return true;
}

// k * ln(x / e) / ln(m / e), with exact detection of integers.
struct LogStep {
  std::int64_t floor;
  bool whole;
};
LogStep StepOf(std::int64_t x, std::int64_t e, std::int64_t m, std::int64_t k) {
  const Quad step = k * logq(Quad(x) / e) / logq(Quad(m) / e);
  const auto nearest = static_cast<std::int64_t>(roundq(step));
  if (fabsq(step - nearest) < 1e-20 && nearest >= 0 &&
      SamePower(x, k, m, nearest, e)) {
    return {nearest, true};
  }
  return {static_cast<std::int64_t>(floorq(step)), false};
}

std::int64_t T5Reference(const T5Buckets& buckets, std::int64_t distance) {
  std::int64_t nb = buckets.num_buckets == 0 ? 32 : buckets.num_buckets;
  const std::int64_t m = buckets.max_distance == 0 ? 128 : buckets.max_distance;
  std::int64_t base = 0;
  std::int64_t n = std::max<std::int64_t>(distance, 0);
  if (buckets.bidirectional) {
    nb /= 2;
    if (distance < 0) base = nb;
    n = std::llabs(distance);
  }
  const std::int64_t e = nb / 2;
  if (n < e) return base + n;
  return base + std::min(nb - 1, e + StepOf(n, e, m, nb - e).floor);
}

std::int64_t DebertaReference(const DebertaBuckets& buckets,
                              std::int64_t distance) {
  const std::int64_t span =
      buckets.bucket_size == 0 ? buckets.max_position : buckets.bucket_size;
  const std::int64_t m = buckets.bucket_size / 2;
  const std::int64_t r = std::llabs(distance);
  std::int64_t bucket = distance;
  if (m != 0 && r > m) {
    const LogStep step = StepOf(r, m, buckets.max_position - 1, m - 1);
    const std::int64_t magnitude = m + step.floor + (step.whole ? 0 : 1);
    bucket = distance < 0 ? -magnitude : magnitude;
  }
  return std::clamp<std::int64_t>(bucket + span, 0, 2 * span - 1);
}

// Returns distances on both sides of zero: all distances up to 2000, then steps
// that grow by about 1 %.
std::vector<std::int64_t> Distances() {
  std::vector<std::int64_t> distances;
  for (std::int64_t d = 0; d <= kFar; d += 1 + (d > 2000 ? d / 97 : 0)) {
    distances.push_back(d);
    distances.push_back(-d);
  }
  distances.push_back(kFar);
  distances.push_back(-kFar);
  return distances;
}

TEST(T5BucketsTest, AreTheFormulaAtEveryDistance) {
  for (const bool bidirectional : {false, true}) {
    for (const auto& [count, max_distance] :
         std::vector<std::pair<int, int>>{{0, 0},
                                          {32, 128},
                                          {32, 256},
                                          {16, 64},
                                          {320, 800},
                                          {64, 1000000},
                                          {4, 3},
                                          {6, 4},
                                          {1000, 501},
                                          {4096, 2147483647},
                                          {30, 215233605}}) {
      const T5Buckets buckets = {count, max_distance, bidirectional};
      ASSERT_TRUE(ValidateT5(buckets).ok()) << ValidateT5(buckets);
      const T5BucketIndex index(buckets);
      for (const std::int64_t d : Distances()) {
        ASSERT_EQ(index(d), T5Reference(buckets, d))
            << count << ", " << max_distance << ", " << d;
      }
    }
  }
}

TEST(T5BucketsTest, DefaultBoundariesAreThoseOfT5) {
  T5Buckets buckets;
  buckets.bidirectional = true;
  const T5BucketIndex index(buckets);
  EXPECT_EQ(index.num_buckets(), 32);
  std::vector<std::int64_t> first;  // distances that start a bucket
  for (std::int64_t d = 1; d < 1000; ++d) {
    if (index(d) != index(d - 1)) first.push_back(d);
    EXPECT_EQ(index(-d), index(d) + 16) << d;
  }
  EXPECT_EQ(first, (std::vector<std::int64_t>{1, 2, 3, 4, 5, 6, 7, 8, 12, 16,
                                              23, 32, 46, 64, 91}));
}

TEST(T5BucketsTest, KeysAfterTheQueryShareBucketZeroInDecoders) {
  const T5BucketIndex index(T5Buckets{});
  EXPECT_EQ(index(0), 0);
  EXPECT_EQ(index(-1), 0);
  EXPECT_EQ(index(-kFar), 0);
  EXPECT_EQ(index(1), 1);
  EXPECT_EQ(index(kFar), 31);
}

TEST(T5BucketsTest, WholeBoundariesAreExactWhereRoundedLogarithmsAreNot) {
  // 15 exact buckets, then boundaries 15 * 3^t.
  const T5BucketIndex index(T5Buckets{30, 215233605, false});
  int rounded_wrong = 0;
  std::int64_t boundary = 15;
  for (int t = 1; t < 15; ++t) {
    boundary *= 3;
    EXPECT_EQ(index(boundary - 1), 15 + t - 1);
    EXPECT_EQ(index(boundary), 15 + t);
    const float rounded = std::log(static_cast<float>(boundary) / 15) /
                          static_cast<float>(std::log(215233605. / 15)) * 15;
    rounded_wrong += static_cast<int>(rounded) != t ? 1 : 0;
  }
  EXPECT_GT(rounded_wrong, 0);  // otherwise the case tests nothing
}

TEST(GeometricPointTest, DecidesWhereLongDoubleCannot) {
  // sqrt((s - 1) * (s + 1)) is s - 2^-31 at s = 2^30, and sqrt(s * s) is s.
  const std::int64_t s = std::int64_t{1} << 30;
  const GeometricPoint below = FindGeometricPoint(s - 1, s + 1, 1, 2);
  EXPECT_EQ(below.floor, s - 1);
  EXPECT_FALSE(below.exact);
  // 46340^2 = 2147395600, the last square below 2^31.
  for (const int off : {-1, 0, 1}) {
    const GeometricPoint root = FindGeometricPoint(1, 2147395600 + off, 1, 2);
    EXPECT_EQ(root.floor, off < 0 ? 46339 : 46340) << off;
    EXPECT_EQ(root.exact, off == 0) << off;
  }
  // The point after 2 of 3 steps: point^3 = first * last^2 = 2000000^3.
  const GeometricPoint third = FindGeometricPoint(2, 2 * 1000000000, 2, 3);
  EXPECT_EQ(third.floor, 2000000);
  EXPECT_TRUE(third.exact);
}

TEST(GeometricPointTest, PointsPastEveryDistanceAreCut) {
  const GeometricPoint point = FindGeometricPoint(2, 2147483647, 3, 1);
  EXPECT_EQ(point.floor, kFar);
  EXPECT_FALSE(point.exact);
}

TEST(DebertaBucketsTest, AreTheFormulaAtEveryDistance) {
  for (const auto& [size, max_position] :
       std::vector<std::pair<int, int>>{{256, 512},
                                        {32, 128},
                                        {16, 24},
                                        {4, 16},
                                        {5, 16},
                                        {7, 100},
                                        {6, 2147483647},
                                        {32, 215233606},
                                        {4096, 2050},
                                        {0, 512},
                                        {0, 1},
                                        {0, 1 << 30}}) {
    const DebertaBuckets buckets = {size, max_position};
    ASSERT_TRUE(ValidateDeberta(buckets).ok()) << ValidateDeberta(buckets);
    const DebertaIndex index(buckets);
    for (const std::int64_t d : Distances()) {
      ASSERT_EQ(index(d), DebertaReference(buckets, d))
          << size << ", " << max_position << ", " << d;
    }
  }
}

TEST(DebertaBucketsTest, TwoBucketsHoldOneSideEach) {
  for (const int size : {2, 3}) {
    const DebertaBuckets buckets = {size, 1000};
    ASSERT_TRUE(ValidateDeberta(buckets).ok());
    const DebertaIndex index(buckets);
    EXPECT_EQ(index.span(), size);
    EXPECT_EQ(index(0), size);
    // The factor mid - 1 is 0 for mid 1: the formula then gives mid + ceil(0).
    for (const std::int64_t d : {std::int64_t{1}, std::int64_t{7}, kFar}) {
      EXPECT_EQ(index(d), size + 1);
      EXPECT_EQ(index(-d), size - 1);
    }
  }
}

TEST(DebertaBucketsTest, TheLastBucketEndsAtTheLastPosition) {
  // The last logarithmic bucket, 2 mid - 1, ends exactly at distance
  // max_position - 1; the next distance is in the next bucket.
  const DebertaIndex index(DebertaBuckets{256, 512});
  EXPECT_EQ(index.span(), 256);
  EXPECT_EQ(index(511), 256 + 255);
  EXPECT_EQ(index(-511), 256 - 255);
  EXPECT_EQ(index(-512), 0);
  EXPECT_EQ(index(128), 256 + 128);
  EXPECT_EQ(index(129), 256 + 129);
}

TEST(ClippedIndexTest, ReachesDifferBySide) {
  const ClippedDistance clip = {64, 8};
  ASSERT_TRUE(ValidateClipped(clip).ok());
  for (std::int64_t d = -100; d <= 100; ++d) {
    EXPECT_EQ(ClippedIndex(clip, d), d < -64 ? 0 : d > 8 ? 72 : d + 64);
  }
  EXPECT_EQ(ClippedIndex(clip, -kFar), 0);
  EXPECT_EQ(ClippedIndex(clip, kFar), 72);
  EXPECT_EQ(ClippedIndex({2147483647, 0}, -kFar), 0);
}

}  // namespace
}  // namespace posenc::core
