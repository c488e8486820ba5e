// Rows of trained tables, and their hierarchical extension.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <quadmath.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "core/absolute/encoding.h"
#include "tests/fixtures/core/absolute.h"
#include "tests/reference/float_formats.h"
#include "tests/reference/rope_reference.h"

namespace posenc::core {
namespace {

using reference::Quad;

LearnedTable Learned(Dtype dtype, const Shape& shape, const void* data) {
  LearnedTable encoding;
  encoding.table = ConstTensorView{dtype, shape, data};
  return encoding;
}

TEST(LearnedTest, LearnedRowsAreCopiedBitForBit) {
  // Includes a signalling NaN, a subnormal and -0.
  const std::vector<std::uint16_t> halves = {0x7d01, 0x0001, 0x8000, 0x3c00};
  EXPECT_THAT(
      Build<std::uint16_t>(Learned(Dtype::kFloat16, {2, 2}, halves.data()),
                           {1, 0, 1}),
      testing::ElementsAre(0x8000, 0x3c00, 0x7d01, 0x0001, 0x8000, 0x3c00));
  const std::vector<double> doubles = {0.1, -1e300};
  EXPECT_THAT(
      Build<double>(Learned(Dtype::kFloat64, {2, 1}, doubles.data()), {1, 0}),
      testing::ElementsAre(-1e300, 0.1));
}

TEST(LearnedTest, LearnedRowsAreRoundedOnce) {
  // The first number is just above the tie between two float16 numbers. Rounded
  // to float32 first, it would become the tie, and then the even neighbour.
  const std::vector<double> wide = {1 + 0x1p-11 + 0x1p-40, 1 + 0x1p-11};
  EXPECT_THAT(
      Build<std::uint16_t>(Learned(Dtype::kFloat64, {1, 2}, wide.data()), {0},
                           Dtype::kFloat16),
      testing::ElementsAre(0x3c01, 0x3c00));
  const std::vector<double> above = {1 + 0x1p-8 + 0x1p-40, 1 + 0x1p-8};
  EXPECT_THAT(
      Build<std::uint16_t>(Learned(Dtype::kFloat64, {1, 2}, above.data()), {0},
                           Dtype::kBfloat16),
      testing::ElementsAre(0x3f81, 0x3f80));
  EXPECT_THAT(Build<float>(Learned(Dtype::kFloat64, {1, 2}, wide.data()), {0}),
              testing::ElementsAre(1 + 0x1p-11f, 1 + 0x1p-11f));
}

TEST(LearnedTest, SixteenBitTablesAreWidenedExactly) {
  for (const bool half : {true, false}) {
    const reference::Format16& format =
        half ? reference::kFloat16 : reference::kBfloat16;
    std::vector<std::uint16_t> table;
    for (int bits = 0; bits < 0x10000; bits += 7) {
      if (std::isnan(Decode16(format, static_cast<std::uint16_t>(bits)))) {
        continue;
      }
      table.push_back(static_cast<std::uint16_t>(bits));
    }
    const auto count = static_cast<std::int64_t>(table.size());
    const LearnedTable learned = Learned(
        half ? Dtype::kFloat16 : Dtype::kBfloat16, {1, count}, table.data());
    const std::vector<float> single = Build<float>(learned, {0});
    const std::vector<double> wide = Build<double>(learned, {0});
    for (std::int64_t i = 0; i < count; ++i) {
      EXPECT_EQ(wide[i], Decode16(format, table[i]));
      EXPECT_EQ(single[i], Decode16(format, table[i]));
    }
  }
}

std::vector<double> RandomTable(std::int64_t size) {
  std::mt19937_64 random(8);
  std::vector<double> table(size);
  for (double& value : table) {
    value = std::normal_distribution<double>()(random);
  }
  return table;
}

TEST(LearnedTest, ExtendedRowsFollowTheArticle) {
  constexpr int kRows = 13;
  constexpr int kDim = 6;
  const std::vector<double> table = RandomTable(kRows * kDim);
  std::vector<double> positions(kRows * kRows);
  for (int p = 0; p < kRows * kRows; ++p) positions[p] = p;
  for (const double alpha : {0.4, 0.75, 1e-3, 0.499}) {
    LearnedTable encoding =
        Learned(Dtype::kFloat64, {kRows, kDim}, table.data());
    encoding.hierarchical_alpha = alpha;
    const std::vector<double> rows = Build<double>(encoding, positions);
    for (int p = 0; p < kRows * kRows; ++p) {
      for (int c = 0; c < kDim; ++c) {
        const Quad a = alpha;
        const Quad outer = table[p / kRows * kDim + c];
        const Quad inner = table[p % kRows * kDim + c];
        const Quad first = table[c];
        const Quad u_outer = (outer - a * first) / (1 - a);
        const Quad u_inner = (inner - a * first) / (1 - a);
        const Quad exact = a * u_outer + (1 - a) * u_inner;
        // The bound covers six roundings of the outer term, and one rounding
        // of each sum.
        const Quad bound = 8 * 0x1p-53 *
                           (fabsq(a / (1 - a) * outer) + fabsq(inner) +
                            fabsq(first / (1 - a)));
        EXPECT_LE(static_cast<double>(fabsq(rows[p * kDim + c] - exact)),
                  static_cast<double>(bound))
            << alpha << ", " << p;
        if (p < kRows) {
          EXPECT_EQ(rows[p * kDim + c], table[p * kDim + c]);
        }
      }
    }
  }
}

TEST(LearnedTest, ExtendedRowsDifferFromEachOther) {
  constexpr int kRows = 11;
  const std::vector<double> table = RandomTable(kRows);
  LearnedTable encoding = Learned(Dtype::kFloat64, {kRows, 1}, table.data());
  encoding.hierarchical_alpha = 0.4;
  std::vector<double> positions(kRows * kRows);
  for (int p = 0; p < kRows * kRows; ++p) positions[p] = p;
  std::vector<double> rows = Build<double>(encoding, positions);
  std::sort(rows.begin(), rows.end());
  EXPECT_EQ(std::adjacent_find(rows.begin(), rows.end()), rows.end());
}

TEST(LearnedTest, ExtendedRowsOfSixteenBitsKeepTheirOwn) {
  const std::vector<std::uint16_t> table = {0x3c00, 0x4233, 0x0001, 0xc555};
  LearnedTable encoding = Learned(Dtype::kFloat16, {4, 1}, table.data());
  encoding.hierarchical_alpha = 0.9;
  EXPECT_EQ(Build<std::uint16_t>(encoding, {0, 1, 2, 3}), table);
}

}  // namespace
}  // namespace posenc::core
