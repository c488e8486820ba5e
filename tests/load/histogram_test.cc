// The histogram against sorted values.

#include "client/tools/load/histogram.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace posenc::load {
namespace {

// Values over 11 decades, so that every bucket size occurs.
std::vector<std::int64_t> RandomValues(int n, unsigned seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> exponent(0, 12.5);
  std::vector<std::int64_t> values;
  for (int i = 0; i < n; ++i) {
    values.push_back(
        static_cast<std::int64_t>(std::pow(10.0, exponent(random))));
  }
  return values;
}

Histogram Of(const std::vector<std::int64_t>& values) {
  Histogram histogram;
  for (const std::int64_t value : values) histogram.Record(value);
  return histogram;
}

TEST(HistogramTest, PercentilesAreThoseOfTheSortedValuesToThreeDigits) {
  std::vector<std::int64_t> values = RandomValues(100000, 1);
  const Histogram histogram = Of(values);
  std::sort(values.begin(), values.end());

  for (const double p :
       {0.001, 1.0, 10.0, 50.0, 90.0, 99.0, 99.9, 99.99, 99.999, 100.0}) {
    const std::size_t rank = static_cast<std::size_t>(
        std::max(1.0, std::ceil(p * values.size() / 100 - 1e-6)));
    const auto exact = static_cast<double>(values[rank - 1]);
    const auto got = static_cast<double>(histogram.Percentile(p));
    EXPECT_GE(got, exact) << p;
    EXPECT_LE(got, exact * 1.001) << p;
  }
  EXPECT_EQ(histogram.Percentile(100), values.back());
  EXPECT_EQ(histogram.min(), values.front());
  EXPECT_EQ(histogram.max(), values.back());
}

TEST(HistogramTest, SmallValuesAreExact) {
  for (std::int64_t value = 1; value < 2048; ++value) {
    EXPECT_EQ(Histogram::FirstOf(Histogram::IndexOf(value)), value);
    EXPECT_EQ(Histogram::LastOf(Histogram::IndexOf(value)), value);
  }
}

TEST(HistogramTest, BucketsFollowOneAnotherWithoutGaps) {
  const std::size_t last = Histogram::IndexOf(Histogram::kHighest);
  for (std::size_t i = 1; i <= last; ++i) {
    ASSERT_EQ(Histogram::FirstOf(i), Histogram::LastOf(i - 1) + 1) << i;
    ASSERT_EQ(Histogram::IndexOf(Histogram::FirstOf(i)), i);
    ASSERT_EQ(Histogram::IndexOf(Histogram::LastOf(i)), i);
  }
  EXPECT_LT(last, Histogram().counts().size());
}

TEST(HistogramTest, MeanIsExact) {
  Histogram histogram;
  histogram.Record(1'000'001);
  histogram.Record(3'000'004, 3);
  EXPECT_EQ(histogram.Mean(), (1'000'001 + 3 * 3'000'004.0) / 4);
  EXPECT_EQ(histogram.count(), 4);
}

TEST(HistogramTest, MergedPartsEqualTheWhole) {
  const std::vector<std::int64_t> values = RandomValues(30000, 2);
  const Histogram whole = Of(values);
  Histogram merged;
  for (int part = 0; part < 3; ++part) {
    merged.Add(Of(
        {values.begin() + part * 10000, values.begin() + (part + 1) * 10000}));
  }
  merged.Add(Histogram());
  EXPECT_EQ(merged.counts(), whole.counts());
  EXPECT_EQ(merged.count(), whole.count());
  EXPECT_EQ(merged.min(), whole.min());
  EXPECT_EQ(merged.max(), whole.max());
  EXPECT_EQ(merged.Percentile(99), whole.Percentile(99));
  // The means differ by rounding, because the sums have another order.
  EXPECT_NEAR(merged.Mean(), whole.Mean(), whole.Mean() * 1e-11);
}

TEST(HistogramTest, AnEmptyOneHasNoValues) {
  EXPECT_EQ(Histogram().count(), 0);
  EXPECT_EQ(Histogram().Percentile(50), 0);
  EXPECT_EQ(Histogram().Mean(), 0);
}

TEST(HistogramTest, ValuesBeyondTheRangeCountAsItsEnds) {
  Histogram histogram;
  histogram.Record(-5);
  histogram.Record(0);
  histogram.Record(Histogram::kHighest * 2);
  EXPECT_EQ(histogram.count(), 3);
  EXPECT_EQ(histogram.min(), 1);
  EXPECT_EQ(histogram.max(), Histogram::kHighest);
}

}  // namespace
}  // namespace posenc::load
