// Positions of tokens from each form of the contract, and refused positions.

#include "core/positions.h"

#include <cstring>
#include <limits>
#include <string>

#include "core/error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace posenc::core {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
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

void ExpectError(const Positions& positions, TokenExtents extents,
                 ErrorReason reason, const std::string& field,
                 const std::string& mention, int axes = 1,
                 bool needs_ids = false) {
  const auto expanded = ExpandPositions(positions, extents, axes, needs_ids);
  ASSERT_FALSE(expanded.ok());
  EXPECT_EQ(expanded.status().code(), reason == ErrorReason::kPositionOutOfRange
                                          ? absl::StatusCode::kOutOfRange
                                          : absl::StatusCode::kInvalidArgument);
  const auto details = GetErrorDetails(expanded.status());
  ASSERT_TRUE(details.has_value());
  EXPECT_EQ(details->reason, reason) << expanded.status();
  EXPECT_EQ(details->field, field);
  EXPECT_THAT(std::string(expanded.status().message()), HasSubstr(mention));
  if (reason == ErrorReason::kPositionOutOfRange) {
    ASSERT_EQ(details->metadata.size(), 1u);
    EXPECT_EQ(details->metadata[0].first, "index");
  }
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

TEST(PositionsTest, RangeIsChecked) {
  constexpr auto kRange = ErrorReason::kPositionOutOfRange;
  EXPECT_THAT(Values(StartPosition{kMax - 1}, Dense(1, 2)),
              ElementsAre(kMax - 1, kMax));
  ExpectError(StartPosition{kMax - 1}, Dense(1, 3), kRange, "start", "2^31");
  ExpectError(StartPosition{kInt64Max}, Dense(1, 3), kRange, "start", "2^31");
  ExpectError(StartPosition{-kMax - 1}, Dense(1, 3), kRange, "start",
              "-2147483649");
  ExpectError(StartPosition{0}, Dense(1, kInt64Max), kRange, "start", "2^31");
  ExpectError(SequenceStarts{{0, kMax}}, Dense(2, 2), kRange,
              "starts.values[1]", "2147483648");
  ExpectError(PackedSequences{{0, 2}, {kMax}}, Packed(2), kRange,
              "packed.starts[0]", "2147483648");
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double inf = std::numeric_limits<double>::infinity();
  for (const double bad : {nan, inf, -inf, kMax + 0.5}) {
    const std::vector<double> ids = {0, bad};
    ExpectError(Ids(Dtype::kFloat64, {2}, ids), Dense(1, 2), kRange, "ids",
                "element 1");
  }
}

TEST(PositionsTest, ShapesAreChecked) {
  constexpr auto kShape = ErrorReason::kShapeMismatch;
  const std::vector<double> ids(24);
  ExpectError(Ids(Dtype::kFloat64, {3}, ids), Dense(2, 4), kShape, "ids.shape",
              "[3]; must be [4] or [2, 4]");
  ExpectError(Ids(Dtype::kFloat64, {4}, ids), Dense(2, 4), kShape, "ids.shape",
              "[3, 4] or [3, 2, 4]", 3);
  ExpectError(Ids(Dtype::kFloat64, {1, 4}, ids), Packed(4), kShape, "ids.shape",
              "[4]");
  ExpectError(SequenceStarts{{0}}, Dense(2, 4), kShape, "starts.values", "[2]");
  ExpectError(PackedSequences{{0, 2, 4}, {1}}, Packed(4), kShape,
              "packed.starts", "[2]");
}

TEST(PositionsTest, BoundariesAreChecked) {
  constexpr auto kBad = ErrorReason::kFieldInvalid;
  ExpectError(PackedSequences{{0, 3, 7, 5}, {}}, Packed(5), kBad,
              "packed.cu_seqlens[3]", "5 after 7; must not decrease");
  ExpectError(PackedSequences{{1, 5}, {}}, Packed(5), kBad,
              "packed.cu_seqlens[0]", "1; must be 0");
  ExpectError(PackedSequences{{0, 4}, {}}, Packed(5), kBad,
              "packed.cu_seqlens[1]", "4");
  ExpectError(PackedSequences{}, Packed(5), ErrorReason::kFieldRequired,
              "packed.cu_seqlens", "empty");
}

TEST(PositionsTest, KindsMustFitTheLayoutAndTheEncoding) {
  constexpr auto kBad = ErrorReason::kFieldInvalid;
  ExpectError(SequenceStarts{{0}}, Packed(4), kBad, "starts", "THD");
  ExpectError(PackedSequences{{0, 4}, {}}, Dense(1, 4), kBad, "packed", "THD");
  ExpectError(StartPosition{}, Dense(1, 4), kBad, "start", "2 axes", 2, true);
  ExpectError(std::monostate{}, Dense(1, 4), ErrorReason::kFieldRequired, "",
              "4 tokens");
  const std::vector<std::uint16_t> half(4);
  ExpectError(Ids(Dtype::kFloat16, {4}, half), Dense(1, 4), kBad, "ids.dtype",
              "float16");
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
  EXPECT_LE(asked, 2 + 31) << "rows are bisected, not listed";
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
