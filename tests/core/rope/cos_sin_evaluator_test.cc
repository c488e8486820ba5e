// Rows that follow from one another: the bytes of rows that are evaluated by
// themselves, wherever the anchor stands.

#include "core/rope/cos_sin_evaluator.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include "core/angle/delta_rows.h"
#include "core/rope/frequencies.h"
#include "core/simd/dispatch.h"
#include "gtest/gtest.h"

namespace posenc::core {
namespace {

ResolvedRope Rope(int pairs, double attention_factor,
                  std::vector<double> inv_freq = {}) {
  RopeSpec spec;
  spec.rotary_dim = 2 * pairs;
  spec.rope_theta = 5e5;
  spec.pairing = Pairing::kHalfSplit;
  absl::StatusOr<ResolvedRope> rope =
      ResolveSpec(spec, 0, std::nullopt, MissingLength::kError);
  EXPECT_TRUE(rope.ok()) << rope.status();
  rope->attention_factor = attention_factor;
  if (!inv_freq.empty()) rope->inv_freq = std::move(inv_freq);
  return *std::move(rope);
}

void ExpectOwnRows(const CosSinEvaluator& evaluator, double first,
                   const std::vector<float>& rows) {
  const std::size_t width = 2 * evaluator.pairs();
  std::vector<float> own(width);
  for (std::size_t t = 0; t < rows.size() / width; ++t) {
    const double position = first + static_cast<double>(t);
    evaluator.Row(&position, own.data());
    ASSERT_EQ(
        std::memcmp(own.data(), rows.data() + t * width, width * sizeof(float)),
        0)
        << position;
  }
}

// Longer than all that follows from one base.
TEST(CosSinEvaluatorTest, RunsHaveTheBytesOfTheirRows) {
  for (const int pairs : {1, 20, 64, 100}) {
    for (const double factor : {1.0, 1.2079441541679836, 0.1}) {
      for (const auto direction : {Direction::kForward, Direction::kInverse}) {
        const CosSinEvaluator evaluator(Rope(pairs, factor), direction,
                                        TensorRole::kKey, nullptr);
        for (const double first : {0.0, -1500.0, 123456.0, 2147480000.0}) {
          constexpr std::int64_t kRows = 2500;
          ASSERT_TRUE(evaluator.HasConsecutiveRows(first, kRows));
          CosSinEvaluator::Anchor anchor(pairs);
          std::vector<float> rows(kRows * 2 * pairs);
          evaluator.ConsecutiveRows(first, kRows, rows.data(),
                                    rows.data() + pairs, 2 * pairs, false,
                                    &anchor);
          ExpectOwnRows(evaluator, first, rows);
        }
      }
    }
  }
}

// Positions jump by what the anchor or its base reaches, and by more.
TEST(CosSinEvaluatorTest, AnchorsServePiecesInAnyOrder) {
  constexpr int kPairs = 64;
  constexpr auto kReach = static_cast<std::int64_t>(DeltaRows::kRows);
  const CosSinEvaluator evaluator(Rope(kPairs, 1), Direction::kForward,
                                  TensorRole::kKey, nullptr);
  ASSERT_TRUE(evaluator.HasConsecutiveRows(0, kReach * kReach));
  CosSinEvaluator::Anchor anchor(kPairs);
  std::mt19937_64 random(1);
  const auto upto = [&random](std::int64_t most) {
    return static_cast<std::int64_t>(random() % most) + 1;
  };
  double position = 0;
  for (int piece = 0; piece < 3000; ++piece) {
    const std::int64_t n = upto(kReach);
    std::vector<float> rows(n * 2 * kPairs);
    evaluator.ConsecutiveRows(position, n, rows.data(), rows.data() + kPairs,
                              2 * kPairs, false, &anchor);
    EXPECT_GT(anchor.Left(position + static_cast<double>(n) - 1), 0);
    ExpectOwnRows(evaluator, position, rows);
    const std::int64_t by = random() % 4 == 0   ? upto(3 * kReach * kReach)
                            : random() % 2 == 0 ? kReach
                                                : upto(kReach);
    position += static_cast<double>(random() % 8 == 0 ? -by : by);
  }
}

// The cosine is next to halfway between two floats, so that the row at 0 is
// rounded exactly; the sine beside it is a negated 0.
TEST(CosSinEvaluatorTest, SinesOfZeroKeepTheirSigns) {
  const CosSinEvaluator evaluator(Rope(4, 1 + 0x1p-24), Direction::kAdjoint,
                                  TensorRole::kKey, nullptr);
  ASSERT_TRUE(evaluator.HasConsecutiveRows(0, 32));
  CosSinEvaluator::Anchor anchor(4);
  std::vector<float> rows(32 * 8);
  evaluator.ConsecutiveRows(0, 32, rows.data(), rows.data() + 4, 8, false,
                            &anchor);
  for (int i = 4; i < 8; ++i) {
    EXPECT_EQ(rows[i], 0) << i;
    EXPECT_TRUE(std::signbit(rows[i])) << i;
  }
  ExpectOwnRows(evaluator, 0, rows);
}

// Some instruction sets get a sine of exactly 0 for the anchor at 48 or 0,
// whose angle is not 0, or not known to be.
TEST(CosSinEvaluatorTest, SinesThatCancelAreNotTakenForExact) {
  struct Case {
    double first, frequency, factor;
  };
  for (const Case& c : {Case{16, 0x1.e5e6505d26128p+0, 1},
                        Case{-640, 0x1.97670cb22a551p-1, 1 + 0x1p-24}}) {
    const CosSinEvaluator evaluator(Rope(1, c.factor, {c.frequency}),
                                    Direction::kForward, TensorRole::kKey,
                                    nullptr);
    constexpr std::int64_t kRows = 1024;
    ASSERT_TRUE(evaluator.HasConsecutiveRows(c.first, kRows));
    CosSinEvaluator::Anchor anchor(1);
    std::vector<float> rows(kRows * 2);
    evaluator.ConsecutiveRows(c.first, kRows, rows.data(), rows.data() + 1, 2,
                              false, &anchor);
    ExpectOwnRows(evaluator, c.first, rows);
  }
}

TEST(CosSinEvaluatorTest, RowsThatSumsWouldNotGiveAreNoSums) {
  const auto has_rows = [](double factor, double frequency, double first) {
    return CosSinEvaluator(Rope(1, factor, {frequency}), Direction::kForward,
                           TensorRole::kKey, nullptr)
        .HasConsecutiveRows(first, 1024);
  };
  EXPECT_TRUE(has_rows(1, 1, 0));
  EXPECT_TRUE(has_rows(1, 400, 2147281920));
  EXPECT_FALSE(has_rows(1, 0x1.ec4d589278a76p+19, 2147281920));
  EXPECT_FALSE(has_rows(1, 0x1.ec4d589278a76p+19, -2147281920));
  EXPECT_TRUE(has_rows(1, 0x1.ec4d589278a76p+19, 0));
  EXPECT_FALSE(has_rows(1, 1, 0.5));
  EXPECT_TRUE(has_rows(1e-20, 1, 0));
  for (const double factor : {1e-31, 1e100, 1e-310}) {
    EXPECT_FALSE(has_rows(factor, 1, 0)) << factor;
  }
}

// The difference to the anchor's position is whole, the position is not.
TEST(CosSinEvaluatorTest, NothingFollowsAtFractionsThatADifferenceLoses) {
  const CosSinEvaluator evaluator(Rope(64, 1), Direction::kForward,
                                  TensorRole::kKey, nullptr);
  ASSERT_TRUE(evaluator.HasConsecutiveRows(-40, 64));
  CosSinEvaluator::Anchor anchor(64);
  std::vector<float> rows(32 * 2 * 64);
  evaluator.ConsecutiveRows(-24, 32, rows.data(), rows.data() + 64, 2 * 64,
                            false, &anchor);
  EXPECT_GT(anchor.Left(1), 0);
  EXPECT_EQ(anchor.Left(1 + 0x1p-51), 0);
  EXPECT_EQ(anchor.Left(1.5), 0);
}

TEST(CosSinEvaluatorTest, NothingFollowsFromAnAnchorThatStandsNowhere) {
  const CosSinEvaluator::Anchor anchor(64);
  for (const double position : {0.0, 1.0, -1.0, 2147483648.0}) {
    EXPECT_EQ(anchor.Left(position), 0);
  }
}

}  // namespace
}  // namespace posenc::core
