// Rows that are computed from an anchor have the bytes of direct evaluation,
// for every place of the anchor.

#include "core/rope/cos_sin_evaluator.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <numeric>
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

// Returns the rows of n tokens at first, first + 1, ...
std::vector<float> RowsFrom(const CosSinEvaluator& evaluator, double first,
                            std::int64_t n, CosSinEvaluator::Anchor* anchor) {
  std::vector<double> positions(static_cast<std::size_t>(n));
  std::iota(positions.begin(), positions.end(), first);
  const std::size_t pairs = evaluator.pairs();
  std::vector<float> rows(positions.size() * 2 * pairs);
  evaluator.Rows(positions, rows.data(), rows.data() + pairs,
                 static_cast<std::ptrdiff_t>(2 * pairs), false, anchor);
  return rows;
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

// The runs are longer than all rows of one base.
TEST(CosSinEvaluatorTest, RunsHaveTheBytesOfTheirRows) {
  for (const int pairs : {1, 20, 64, 100}) {
    for (const double factor : {1.0, 1.2079441541679836, 0.1}) {
      for (const auto direction : {Direction::kForward, Direction::kInverse}) {
        const CosSinEvaluator evaluator(Rope(pairs, factor), direction,
                                        TensorRole::kKey, nullptr);
        for (const double first : {0.0, -1500.0, 123456.0, 2147480000.0}) {
          constexpr std::int64_t kRows = 2500;
          ASSERT_TRUE(evaluator.Follow(first, kRows));
          CosSinEvaluator::Anchor anchor(pairs);
          ExpectOwnRows(evaluator, first,
                        RowsFrom(evaluator, first, kRows, &anchor));
        }
      }
    }
  }
}

// Positions jump within the reach of the anchor or its base, and beyond.
TEST(CosSinEvaluatorTest, AnchorsServePiecesInAnyOrder) {
  constexpr int kPairs = 64;
  constexpr auto kReach = static_cast<std::int64_t>(DeltaRows::kRows);
  const CosSinEvaluator evaluator(Rope(kPairs, 1), Direction::kForward,
                                  TensorRole::kKey, nullptr);
  ASSERT_TRUE(evaluator.Follow(0, kReach * kReach));
  CosSinEvaluator::Anchor anchor(kPairs);
  std::mt19937_64 random(1);
  const auto upto = [&random](std::int64_t most) {
    return static_cast<std::int64_t>(random() % most) + 1;
  };
  double position = 0;
  for (int piece = 0; piece < 3000; ++piece) {
    const std::int64_t n = upto(kReach);
    ExpectOwnRows(evaluator, position,
                  RowsFrom(evaluator, position, n, &anchor));
    const std::int64_t by = random() % 4 == 0   ? upto(3 * kReach * kReach)
                            : random() % 2 == 0 ? kReach
                                                : upto(kReach);
    position += static_cast<double>(random() % 8 == 0 ? -by : by);
  }
}

// The cosine is close to halfway between two floats, so the row at 0 gets the
// exact rounding; its sine is a negated 0.
TEST(CosSinEvaluatorTest, SinesOfZeroKeepTheirSigns) {
  const CosSinEvaluator evaluator(Rope(4, 1 + 0x1p-24), Direction::kAdjoint,
                                  TensorRole::kKey, nullptr);
  ASSERT_TRUE(evaluator.Follow(0, 32));
  CosSinEvaluator::Anchor anchor(4);
  const std::vector<float> rows = RowsFrom(evaluator, 0, 32, &anchor);
  for (int i = 4; i < 8; ++i) {
    EXPECT_EQ(rows[i], 0) << i;
    EXPECT_TRUE(std::signbit(rows[i])) << i;
  }
  ExpectOwnRows(evaluator, 0, rows);
}

// Some instruction sets compute a sine of exactly 0 for the anchor at 48 or 0,
// although its angle is not 0, or not known to be 0.
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
    ASSERT_TRUE(evaluator.Follow(c.first, kRows));
    CosSinEvaluator::Anchor anchor(1);
    ExpectOwnRows(evaluator, c.first,
                  RowsFrom(evaluator, c.first, kRows, &anchor));
  }
}

TEST(CosSinEvaluatorTest, RowsThatSumsWouldNotGiveAreNoSums) {
  const auto has_rows = [](double factor, double frequency, double first) {
    return CosSinEvaluator(Rope(1, factor, {frequency}), Direction::kForward,
                           TensorRole::kKey, nullptr)
        .Follow(first, 1024);
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

// One call has runs of whole positions, a run of fractional positions, and
// single positions.
TEST(CosSinEvaluatorTest, RowsOfAnyPositionsAreTheirOwn) {
  constexpr std::size_t kPairs = 64;
  const CosSinEvaluator evaluator(Rope(kPairs, 1), Direction::kForward,
                                  TensorRole::kKey, nullptr);
  std::vector<double> positions;
  const auto add_run = [&positions](double first, int n) {
    for (int i = 0; i < n; ++i) positions.push_back(first + i);
  };
  add_run(-24, 32);
  // The difference from the anchor is whole, but the position is not.
  add_run(1 + 0x1p-51, 1);
  add_run(1.5, 5);
  add_run(7, 3);
  add_run(9, 4);
  add_run(0, 1);
  add_run(2147483640, 9);
  add_run(100, 40);
  CosSinEvaluator::Anchor anchor(kPairs);
  std::vector<float> rows(positions.size() * 2 * kPairs);
  evaluator.Rows(positions, rows.data(), rows.data() + kPairs, 2 * kPairs,
                 false, &anchor);
  for (std::size_t t = 0; t < positions.size(); ++t) {
    const auto row = rows.begin() + static_cast<std::ptrdiff_t>(2 * kPairs * t);
    ExpectOwnRows(evaluator, positions[t], {row, row + 2 * kPairs});
  }
}

}  // namespace
}  // namespace posenc::core
