// Positions of tokens from each form of the contract. Bad requests:
// tests/data/bad_requests.

#include "core/positions/positions.h"

#include <cstring>
#include <limits>
#include <string>

#include "core/base/error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace posenc::core {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::int64_t kMax = std::int64_t{1} << 31;
constexpr std::int64_t kInt64Max = std::numeric_limits<std::int64_t>::max();

TokenExtents Dense(std::int64_t batch, std::int64_t tokens) {
  return {batch, tokens, false};
}
TokenExtents Packed(std::int64_t tokens) { return {1, tokens, true}; }

std::vector<double> Values(const Positions& positions, TokenExtents extents,
                           int axes = 1, bool needs_ids = false) {
  const auto expanded = ExpandPositions(positions, extents, axes, needs_ids);
  EXPECT_TRUE(expanded.ok()) << expanded.status();
  return expanded.ok() ? expanded->values() : std::vector<double>{};
}

template <typename T>
PositionIds Ids(Dtype dtype, Shape shape, const std::vector<T>& values) {
  return {{dtype, std::move(shape), values.data()}};
}

TEST(PositionsTest, StartCountsUp) {
  EXPECT_THAT(Values(StartPosition{-2}, Dense(3, 4)),
              ElementsAre(-2, -1, 0, 1));
  EXPECT_THAT(Values(StartPosition{5}, Packed(2)), ElementsAre(5, 6));
}

TEST(PositionsTest, StartIsTheSameOnEveryAxis) {
  EXPECT_THAT(Values(StartPosition{7}, Dense(1, 2), 3),
              ElementsAre(7, 8, 7, 8, 7, 8));
}

TEST(PositionsTest, StartsCountUpEachSequence) {
  const auto expanded =
      ExpandPositions(SequenceStarts{{10, -1}}, Dense(2, 2), 2, false);
  ASSERT_TRUE(expanded.ok()) << expanded.status();
  EXPECT_THAT(expanded->values(), ElementsAre(10, 11, -1, 0, 10, 11, -1, 0));
  EXPECT_FALSE(expanded->shared());
  EXPECT_EQ(expanded->at(1, 1, 0), -1);
}

TEST(PositionsTest, IdsOfEveryDtypeKeepFractions) {
  const std::vector<std::int32_t> i32 = {3, -4};
  const std::vector<std::int64_t> i64 = {kMax, -kMax};
  const std::vector<float> f32 = {0.5f, 2.25f};
  const std::vector<double> f64 = {0.1, -1e9 / 3};
  EXPECT_THAT(Values(Ids(Dtype::kInt32, {2}, i32), Dense(5, 2)),
              ElementsAre(3, -4));
  EXPECT_THAT(Values(Ids(Dtype::kInt64, {2}, i64), Dense(1, 2)),
              ElementsAre(kMax, -kMax));
  EXPECT_THAT(Values(Ids(Dtype::kFloat32, {2}, f32), Packed(2)),
              ElementsAre(0.5, 2.25));
  EXPECT_THAT(Values(Ids(Dtype::kFloat64, {2, 1}, f64), Dense(2, 1)),
              ElementsAre(0.1, -1e9 / 3));
}

TEST(PositionsTest, IdsMayBeMisaligned) {
  char bytes[9] = {};
  const std::int64_t id = 77;
  std::memcpy(bytes + 1, &id, sizeof(id));
  EXPECT_THAT(Values(PositionIds{{Dtype::kInt64, {1}, bytes + 1}}, Dense(1, 1)),
              ElementsAre(77));
}

TEST(PositionsTest, AxesComeFirst) {
  const std::vector<double> ids = {1, 2, 3, 4, 5, 6, 7, 8};
  const auto each = ExpandPositions(Ids(Dtype::kFloat64, {2, 2, 2}, ids),
                                    Dense(2, 2), 2, true);
  ASSERT_TRUE(each.ok()) << each.status();
  EXPECT_EQ(each->at(1, 0, 1), 6);
  const auto one =
      ExpandPositions(Ids(Dtype::kFloat64, {2, 4}, ids), Dense(3, 4), 2, true);
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_TRUE(one->shared());
  EXPECT_EQ(one->at(1, 2, 0), 5);
}

TEST(PositionsTest, PackedSequencesStartAnew) {
  EXPECT_THAT(Values(PackedSequences{{0, 2, 2, 5}, {}}, Packed(5)),
              ElementsAre(0, 1, 0, 1, 2));
  EXPECT_THAT(Values(PackedSequences{{0, 2, 5}, {10, -1}}, Packed(5)),
              ElementsAre(10, 11, -1, 0, 1));
}

TEST(PositionsTest, NoTokensNeedNoPositions) {
  EXPECT_THAT(Values(std::monostate{}, Dense(2, 0)), IsEmpty());
  EXPECT_THAT(Values(std::monostate{}, Dense(0, 9)), IsEmpty());
  EXPECT_THAT(Values(PackedSequences{{0}, {}}, Packed(0)), IsEmpty());
  EXPECT_THAT(Values(SequenceStarts{}, Dense(0, 9)), IsEmpty());
}

TEST(PositionsTest, TheLastPositionIsWithinTheRange) {
  EXPECT_THAT(Values(StartPosition{kMax - 1}, Dense(1, 2)),
              ElementsAre(kMax - 1, kMax));
  // More tokens than a message can hold.
  const auto expanded =
      ExpandPositions(StartPosition{0}, Dense(1, kInt64Max), 1, false);
  EXPECT_EQ(expanded.status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(GetErrorDetails(expanded.status())->field, "start");
}

absl::Status OutOfRange(std::int64_t index) {
  return MakeError(absl::StatusCode::kOutOfRange,
                   ErrorReason::kPositionOutOfRange, "positions", "none there",
                   {{"index", std::to_string(index)}});
}

// The metadata `index` of an error.
std::string IndexOf(const absl::Status& status) {
  const auto details = GetErrorDetails(status);
  if (!details) return "no error";
  for (const auto& [key, value] : details->metadata) {
    if (key == "index") return value;
  }
  return "no index";
}

absl::Status HasAll(const TokenPositions& /*positions*/,
                    std::int64_t /*first*/) {
  return absl::OkStatus();
}

TEST(ConsecutivePositionsTest, FindsTheFirstRowThatTheEncodingLacks) {
  int asked = 0;
  // A table of rows for positions 0 to 999.
  const auto reach = [&asked](const TokenPositions& positions,
                              std::int64_t first) -> absl::Status {
    ++asked;
    if (positions.at(1, 0, 0) < 1000) return absl::OkStatus();
    return OutOfRange(first);
  };
  EXPECT_TRUE(CheckConsecutive(0, 1000, 2, reach).ok());
  EXPECT_EQ(IndexOf(CheckConsecutive(0, 1001, 2, reach)), "1000");
  EXPECT_EQ(IndexOf(CheckConsecutive(1000, 1, 2, reach)), "0");
  asked = 0;
  EXPECT_EQ(IndexOf(CheckConsecutive(7, kMax - 7, 2, reach)), "993");
  EXPECT_LE(asked, 3 + 31) << "rows are bisected, not listed";
}

TEST(ConsecutivePositionsTest, StaysWithinTheContractsRange) {
  EXPECT_TRUE(CheckConsecutive(-kMax, 2 * kMax + 1, 1, HasAll).ok());
  const absl::Status last = CheckConsecutive(kMax - 1, 5, 1, HasAll);
  const auto details = GetErrorDetails(last);
  ASSERT_TRUE(details.has_value());
  EXPECT_EQ(details->reason, ErrorReason::kPositionOutOfRange);
  EXPECT_EQ(details->field, "positions.start");
  EXPECT_EQ(IndexOf(last), "2") << last;
  EXPECT_EQ(IndexOf(CheckConsecutive(kInt64Max, kInt64Max, 1, HasAll)), "0");
  const absl::Status first = CheckConsecutive(-kMax - 1, 1, 1, HasAll);
  EXPECT_EQ(GetErrorDetails(first)->field, "positions.start");
}

TEST(RunLengthTest, CountsThePositionsThatFollowOneAnother) {
  for (const double start : {0.0, -70.0, 2147483000.0, -2147483648.0}) {
    for (const std::size_t size : {1, 2, 64, 65, 66, 128, 129, 200, 648}) {
      std::vector<double> positions;
      for (std::size_t i = 0; i < size; ++i) positions.push_back(start + i);
      EXPECT_EQ(RunLength(positions), size);
      for (std::size_t odd = 1; odd < size; ++odd) {
        for (const double by : {-1.0, 0.5, 1.0}) {
          std::vector<double> other = positions;
          other[odd] += by;
          EXPECT_EQ(RunLength(other), odd);
        }
      }
    }
  }
}

}  // namespace
}  // namespace posenc::core
