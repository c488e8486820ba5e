// The histogram against sorted values, and its encoding against an independent
// decoder, written from the format's description.

#include "client/load/histogram.h"

#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_split.h"
#include "client/load/hdr_log.h"
#include "gmock/gmock.h"
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
  // Sums of doubles in another order.
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

struct Decoded {
  std::uint32_t cookie = 0;
  int digits = 0;
  std::int64_t lowest = 0, highest = 0;
  double ratio = 0;
  std::map<std::size_t, std::int64_t> counts;  // by index, without zeros
};

std::uint64_t BigEndian(const std::string& bytes, std::size_t at, int size) {
  std::uint64_t value = 0;
  for (int i = 0; i < size; ++i) {
    value = value << 8 | static_cast<unsigned char>(bytes.at(at + i));
  }
  return value;
}

Decoded Decode(const std::string& text) {
  Decoded out;
  std::string outer;
  EXPECT_TRUE(absl::Base64Unescape(text, &outer));
  EXPECT_EQ(BigEndian(outer, 0, 4), 0x1c849314u);
  EXPECT_EQ(BigEndian(outer, 4, 4), outer.size() - 8);
  std::string bytes(1 << 20, '\0');
  uLongf size = bytes.size();
  EXPECT_EQ(uncompress(reinterpret_cast<Bytef*>(bytes.data()), &size,
                       reinterpret_cast<const Bytef*>(outer.data()) + 8,
                       outer.size() - 8),
            Z_OK);
  bytes.resize(size);
  out.cookie = static_cast<std::uint32_t>(BigEndian(bytes, 0, 4));
  EXPECT_EQ(BigEndian(bytes, 4, 4), bytes.size() - 40);
  EXPECT_EQ(BigEndian(bytes, 8, 4), 0u);
  out.digits = static_cast<int>(BigEndian(bytes, 12, 4));
  out.lowest = static_cast<std::int64_t>(BigEndian(bytes, 16, 8));
  out.highest = static_cast<std::int64_t>(BigEndian(bytes, 24, 8));
  const std::uint64_t ratio = BigEndian(bytes, 32, 8);
  std::memcpy(&out.ratio, &ratio, 8);
  std::size_t index = 0;
  for (std::size_t at = 40; at < bytes.size();) {
    std::uint64_t zigzag = 0;
    for (int i = 0; i < 9; ++i) {
      const auto byte = static_cast<unsigned char>(bytes.at(at++));
      if (i == 8) {
        zigzag |= std::uint64_t{byte} << 56;
      } else {
        zigzag |= std::uint64_t{byte & 0x7fu} << (7 * i);
        if (byte < 0x80) break;
      }
    }
    const auto value = static_cast<std::int64_t>(zigzag >> 1) ^
                       -static_cast<std::int64_t>(zigzag & 1);
    if (value < 0) {
      index += static_cast<std::size_t>(-value);
    } else {
      if (value > 0) out.counts[index] = value;
      ++index;
    }
  }
  return out;
}

std::map<std::size_t, std::int64_t> CountsOf(const Histogram& histogram) {
  std::map<std::size_t, std::int64_t> counts;
  for (std::size_t i = 0; i < histogram.counts().size(); ++i) {
    if (histogram.counts()[i]) counts[i] = histogram.counts()[i];
  }
  return counts;
}

TEST(HdrLogTest, DecodesToTheSameCounts) {
  Histogram histogram = Of(RandomValues(5000, 4));
  // Every length of a varint.
  for (int bit = 0; bit < 62; ++bit) {
    histogram.Record(100 + bit, std::int64_t{1} << bit);
  }
  const std::string text = EncodeHistogram(histogram);
  EXPECT_THAT(text, testing::StartsWith("HISTFAAA"));
  const Decoded decoded = Decode(text);
  EXPECT_EQ(decoded.cookie, 0x1c849313u);
  EXPECT_EQ(decoded.digits, 3);
  EXPECT_EQ(decoded.lowest, 1);
  EXPECT_EQ(decoded.highest, 3'600'000'000'000);
  EXPECT_EQ(decoded.ratio, 1.0);
  EXPECT_EQ(decoded.counts, CountsOf(histogram));
}

TEST(HdrLogTest, EmptyHistogramDecodes) {
  EXPECT_TRUE(Decode(EncodeHistogram(Histogram())).counts.empty());
}

TEST(HdrLogTest, LineHasTagTimesGreatestInMillisecondsAndHistogram) {
  const Histogram histogram = Of({1'500'000, 2'250'000});
  const std::string line = HdrLogLine("16 in, flight", absl::Milliseconds(1250),
                                      absl::Milliseconds(1001), histogram);
  const std::vector<std::string> fields = absl::StrSplit(line, ',');
  ASSERT_EQ(fields.size(), 5u);
  EXPECT_EQ(fields[0], "Tag=16_in__flight");
  EXPECT_EQ(fields[1], "1.250");
  EXPECT_EQ(fields[2], "1.001");
  EXPECT_EQ(fields[3], "2.250");
  ASSERT_EQ(fields[4].back(), '\n');
  EXPECT_EQ(Decode(fields[4].substr(0, fields[4].size() - 1)).counts,
            CountsOf(histogram));
}

TEST(HdrLogTest, HeaderNamesFormatAndStart) {
  EXPECT_EQ(HdrLogHeader(absl::FromUnixMillis(1441812279474)),
            "#[Logged with posenc-load]\n"
            "#[Histogram log format version 1.3]\n"
            "#[StartTime: 1441812279.474 (seconds since epoch), Wed Sep 09 "
            "15:24:39 UTC 2015]\n"
            "\"StartTimestamp\",\"Interval_Length\",\"Interval_Max\","
            "\"Interval_Compressed_Histogram\"\n");
}

}  // namespace
}  // namespace posenc::load
