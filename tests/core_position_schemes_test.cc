// Position schemes: ids written out by hand, properties of larger ones, and bad
// input.

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/position_schemes.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace posenc::core {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::HasSubstr;

constexpr std::int64_t kMax = 2147483647;

struct Built {
  PositionExtents extents;
  std::vector<double> ids;

  // The ids of one axis of [axes, T].
  std::vector<double> Axis(std::int64_t a) const {
    const std::int64_t tokens = extents.shape.back();
    return {ids.begin() + a * tokens, ids.begin() + (a + 1) * tokens};
  }
};

Built Build(const PositionScheme& scheme) {
  Built out;
  const absl::StatusOr<PositionExtents> extents = ValidateScheme(scheme);
  EXPECT_TRUE(extents.ok()) << extents.status();
  if (!extents.ok()) return out;
  out.extents = *extents;
  std::int64_t count = 1;
  for (const std::int64_t extent : extents->shape) count *= extent;
  // Of the exact size, so that a sanitizer sees every byte too many.
  std::vector<char> bytes(count * DtypeSize(extents->dtype));
  const TensorView view = {extents->dtype, extents->shape, bytes.data()};
  FillPositions(scheme, view);
  for (std::int64_t i = 0; i < count; ++i) {
    out.ids.push_back(
        ElementAsDouble({view.dtype, view.shape, bytes.data()}, i));
  }
  return out;
}

TEST(PackedSchemeTest, PositionsStartAgainWithEachSequence) {
  const Built built = Build(PackedScheme{{3, 0, 2}});
  EXPECT_EQ(built.extents.dtype, Dtype::kInt32);
  EXPECT_THAT(built.extents.shape, ElementsAre(5));
  EXPECT_THAT(built.ids, ElementsAre(0, 1, 2, 0, 1));
}

TEST(PackedSchemeTest, NoSequencesHaveNoPositions) {
  EXPECT_THAT(Build(PackedScheme{}).extents.shape, ElementsAre(0));
  EXPECT_THAT(Build(PaddedScheme{{}, 4, false, 0}).extents.shape,
              ElementsAre(0, 4));
  EXPECT_THAT(Build(ContextParallelScheme{{}, 2, 1}).extents.shape,
              ElementsAre(0));
}

TEST(PaddedSchemeTest, PadsOnTheRight) {
  const Built built = Build(PaddedScheme{{2, 4, 0}, 4, false, 0});
  EXPECT_THAT(built.extents.shape, ElementsAre(3, 4));
  EXPECT_THAT(built.ids, ElementsAre(0, 1, 0, 0,  //
                                     0, 1, 2, 3,  //
                                     0, 0, 0, 0));
}

TEST(PaddedSchemeTest, PadsOnTheLeftWithThePaddingPosition) {
  const Built built = Build(PaddedScheme{{2, 3}, 3, true, -7});
  EXPECT_THAT(built.ids, ElementsAre(-7, 0, 1, 0, 1, 2));
}

TEST(ContextParallelSchemeTest, RankTakesAChunkFromEachEnd) {
  EXPECT_THAT(Build(ContextParallelScheme{{8, 4}, 2, 0}).ids,
              ElementsAre(0, 1, 6, 7, 0, 3));
  EXPECT_THAT(Build(ContextParallelScheme{{8, 4}, 2, 1}).ids,
              ElementsAre(2, 3, 4, 5, 1, 2));
}

TEST(ContextParallelSchemeTest, OneDeviceHoldsEverythingInOrder) {
  EXPECT_THAT(Build(ContextParallelScheme{{6}, 1, 0}).ids,
              ElementsAre(0, 1, 2, 3, 4, 5));
}

TEST(ContextParallelSchemeTest, RanksPartitionTheSequenceAndItsCausalWork) {
  constexpr std::int32_t kSize = 8;
  constexpr std::int64_t kLength = 16 * 24;
  std::vector<double> all;
  std::vector<double> work;
  for (std::int32_t rank = 0; rank < kSize; ++rank) {
    const Built built = Build(ContextParallelScheme{{kLength}, kSize, rank});
    EXPECT_EQ(built.ids.size(), kLength / kSize);
    all.insert(all.end(), built.ids.begin(), built.ids.end());
    work.push_back(std::accumulate(built.ids.begin(), built.ids.end(), 0.0));
  }
  std::sort(all.begin(), all.end());
  for (std::int64_t i = 0; i < kLength; ++i) EXPECT_EQ(all[i], i);
  // What zig-zag is for: every device attends to as many keys.
  EXPECT_THAT(work, testing::Each(work[0]));
}

TEST(GridSchemeTest, CellsAreRowMajor) {
  const Built built = Build(GridScheme{{2, 3}, {}, {}, 0});
  EXPECT_EQ(built.extents.dtype, Dtype::kInt32);
  EXPECT_THAT(built.extents.shape, ElementsAre(2, 6));
  EXPECT_THAT(built.Axis(0), ElementsAre(0, 0, 0, 1, 1, 1));
  EXPECT_THAT(built.Axis(1), ElementsAre(0, 1, 2, 0, 1, 2));
}

// Qwen2-VL's rot_pos_emb for a grid of 1 x 4 x 4 patches and a merge size of 2:
// hpos_ids reshaped to [2, 2, 2, 2], its middle axes exchanged.
TEST(GridSchemeTest, MergeOrdersByBlocksOfTheLastTwoAxes) {
  const Built built = Build(GridScheme{{4, 4}, {}, {}, 2});
  EXPECT_THAT(built.Axis(0),
              ElementsAre(0, 0, 1, 1, 0, 0, 1, 1, 2, 2, 3, 3, 2, 2, 3, 3));
  EXPECT_THAT(built.Axis(1),
              ElementsAre(0, 1, 0, 1, 2, 3, 2, 3, 0, 1, 0, 1, 2, 3, 2, 3));
}

TEST(GridSchemeTest, MergeLeavesOuterAxesRowMajor) {
  const GridScheme grid{{2, 3, 2, 6}, {}, {}, 2};
  const Built built = Build(grid);
  // Loops in the order that the comment of merge_size tells.
  std::vector<std::vector<double>> axes(4);
  for (int a = 0; a < 2; ++a)
    for (int b = 0; b < 3; ++b)
      for (int block_row = 0; block_row < 1; ++block_row)
        for (int block_column = 0; block_column < 3; ++block_column)
          for (int row = 0; row < 2; ++row)
            for (int column = 0; column < 2; ++column) {
              axes[0].push_back(a);
              axes[1].push_back(b);
              axes[2].push_back(block_row * 2 + row);
              axes[3].push_back(block_column * 2 + column);
            }
  for (int a = 0; a < 4; ++a) {
    EXPECT_THAT(built.Axis(a), ElementsAreArray(axes[a])) << "axis " << a;
  }
}

TEST(GridSchemeTest, AMergeOfOneIsRowMajor) {
  EXPECT_EQ(Build(GridScheme{{3, 5}, {}, {}, 1}).ids,
            Build(GridScheme{{3, 5}, {}, {}, 0}).ids);
}

TEST(GridSchemeTest, OffsetsAndStepsMakeFloat64) {
  const Built built = Build(GridScheme{{2, 3}, {0.5, -1}, {2, 0.25}, 0});
  EXPECT_EQ(built.extents.dtype, Dtype::kFloat64);
  EXPECT_THAT(built.Axis(0), ElementsAre(0.5, 0.5, 0.5, 2.5, 2.5, 2.5));
  EXPECT_THAT(built.Axis(1), ElementsAre(-1, -0.75, -0.5, -1, -0.75, -0.5));
  const Built steps = Build(GridScheme{{3}, {}, {1.5}, 0});
  EXPECT_EQ(steps.extents.dtype, Dtype::kFloat64);
  EXPECT_THAT(steps.ids, ElementsAre(0, 1.5, 3));
}

VisionGrid Vision(std::int64_t time, std::int64_t height, std::int64_t width,
                  std::int32_t merge = 0) {
  VisionGrid grid;
  grid.time = time;
  grid.height = height;
  grid.width = width;
  grid.spatial_merge_size = merge;
  return grid;
}

// The example in the documentation of Qwen2-VL's get_rope_index: a video of
// 3 x 2 x 2, then five text tokens.
TEST(MultimodalSchemeTest, MatchesTheExampleOfQwen2Vl) {
  const Built built =
      Build(MultimodalScheme{{Vision(3, 2, 2), std::int64_t{5}}});
  EXPECT_EQ(built.extents.dtype, Dtype::kInt32);
  EXPECT_THAT(built.extents.shape, ElementsAre(3, 17));
  EXPECT_THAT(built.Axis(0),
              ElementsAre(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 4, 5, 6, 7));
  EXPECT_THAT(built.Axis(1),
              ElementsAre(0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1, 3, 4, 5, 6, 7));
  EXPECT_THAT(built.Axis(2),
              ElementsAre(0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 3, 4, 5, 6, 7));
  EXPECT_EQ(built.extents.next_position, 8);
  EXPECT_EQ(built.extents.delta, 8 - 17);
}

// The example of Qwen2.5-VL's: the same video, 50 positions between patches.
TEST(MultimodalSchemeTest, MatchesTheExampleOfQwen25Vl) {
  VisionGrid video = Vision(3, 2, 2);
  video.time_step = 50;
  const Built built = Build(MultimodalScheme{{video, std::int64_t{5}}});
  EXPECT_THAT(built.Axis(0), ElementsAre(0, 0, 0, 0, 50, 50, 50, 50, 100, 100,
                                         100, 100, 101, 102, 103, 104, 105));
  EXPECT_THAT(built.Axis(1), ElementsAre(0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1,
                                         101, 102, 103, 104, 105));
  EXPECT_EQ(built.extents.next_position, 106);
  EXPECT_EQ(built.extents.delta, 106 - 17);
}

TEST(MultimodalSchemeTest, AnImageBetweenTextsAdvancesByItsLongestAxis) {
  // 4 x 6 patches become 2 x 3 tokens.
  const Built built = Build(
      MultimodalScheme{{std::int64_t{2}, Vision(1, 4, 6, 2), std::int64_t{2}}});
  EXPECT_THAT(built.Axis(0), ElementsAre(0, 1, 2, 2, 2, 2, 2, 2, 5, 6));
  EXPECT_THAT(built.Axis(1), ElementsAre(0, 1, 2, 2, 2, 3, 3, 3, 5, 6));
  EXPECT_THAT(built.Axis(2), ElementsAre(0, 1, 2, 3, 4, 2, 3, 4, 5, 6));
  EXPECT_EQ(built.extents.next_position, 7);
  EXPECT_EQ(built.extents.delta, 7 - 10);
}

TEST(MultimodalSchemeTest, TimeStepsAreCutAfterTheyWereMultiplied) {
  VisionGrid video = Vision(5, 1, 1);
  video.time_step = 1.9;
  EXPECT_THAT(Build(MultimodalScheme{{video}}).Axis(0),
              ElementsAre(0, 1, 3, 5, 7));  // 0, 1.9, 3.8, 5.7, 7.6
  video.time_step = 0;
  const Built still = Build(MultimodalScheme{{video}});
  EXPECT_THAT(still.Axis(0), ElementsAre(0, 0, 0, 0, 0));
  EXPECT_EQ(still.extents.next_position, 1);
}

TEST(MultimodalSchemeTest, NoTextTokensLeaveTheSequenceWhereItIs) {
  EXPECT_EQ(Build(MultimodalScheme{{std::int64_t{0}, Vision(1, 2, 2),
                                    std::int64_t{0}, std::int64_t{1}}})
                .ids,
            Build(MultimodalScheme{{Vision(1, 2, 2), std::int64_t{1}}}).ids);
}

TEST(MultimodalSchemeTest, TextAloneIsTheSameOnEveryAxis) {
  const Built built =
      Build(MultimodalScheme{{std::int64_t{3}, std::int64_t{2}}});
  for (int a = 0; a < 3; ++a) {
    EXPECT_THAT(built.Axis(a), ElementsAre(0, 1, 2, 3, 4));
  }
  EXPECT_EQ(built.extents.delta, 0);
}

TEST(AttentionSinkSchemeTest, KeepsTheFirstAndTheLast) {
  const Built built = Build(AttentionSinkScheme{2, 3, 100});
  EXPECT_THAT(built.ids, ElementsAre(0, 1, 97, 98, 99));
  EXPECT_EQ(built.extents.next_position, 5);
  EXPECT_EQ(built.extents.delta, 0);
}

TEST(AttentionSinkSchemeTest, ACacheThatIsNotFullKeepsAll) {
  const Built built = Build(AttentionSinkScheme{2, 3, 4});
  EXPECT_THAT(built.ids, ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(built.extents.next_position, 4);
  EXPECT_THAT(Build(AttentionSinkScheme{4, 0, 2}).ids, ElementsAre(0, 1));
  EXPECT_THAT(Build(AttentionSinkScheme{4, 4, 0}).extents.shape,
              ElementsAre(0));
}

TEST(AttentionSinkSchemeTest, ACacheThatIsJustFullKeepsAll) {
  EXPECT_THAT(Build(AttentionSinkScheme{2, 3, 5}).ids,
              ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(Build(AttentionSinkScheme{0, 2, 5}).ids, ElementsAre(3, 4));
}

TEST(PositionSchemeTest, TheLastPositionThatInt32HasIsTaken) {
  const absl::StatusOr<PositionExtents> packed =
      ValidateScheme(PackedScheme{{kMax + 1}});
  ASSERT_TRUE(packed.ok()) << packed.status();
  EXPECT_THAT(packed->shape, ElementsAre(kMax + 1));
  EXPECT_EQ(Build(AttentionSinkScheme{0, 1, kMax + 1}).ids.front(), kMax);
  VisionGrid video = Vision(2, 1, 1);
  video.time_step = kMax;
  EXPECT_EQ(Build(MultimodalScheme{{video}}).Axis(0)[1], kMax);
}

struct BadScheme {
  const char* name;
  PositionScheme scheme;
  absl::StatusCode code;
  ErrorReason reason;
  const char* field;
  std::vector<const char*> says;
};

MultimodalScheme Spans(VisionGrid grid) { return MultimodalScheme{{grid}}; }

VisionGrid WithStep(double step) {
  VisionGrid grid = Vision(2, 2, 2);
  grid.time_step = step;
  return grid;
}

TEST(PositionSchemeTest, BadInputIsToldWithFieldNumbersAndReason) {
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  constexpr auto kRange = absl::StatusCode::kOutOfRange;
  constexpr auto kRequired = ErrorReason::kFieldRequired;
  constexpr auto kBad = ErrorReason::kFieldInvalid;
  constexpr auto kPosition = ErrorReason::kPositionOutOfRange;
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();
  const std::vector<BadScheme> cases = {
      {"Nothing", {}, kInvalid, kRequired, "", {"packed", "multimodal"}},
      {"PackedNegative",
       PackedScheme{{4, -1}},
       kInvalid,
       kBad,
       "packed.lengths[1]",
       {"-1"}},
      {"PackedTooLong",
       PackedScheme{{4, kMax + 2}},
       kRange,
       kPosition,
       "packed.lengths[1]",
       {"2147483649", "2147483647"}},
      {"PackedHuge",
       PackedScheme{{kHuge, kHuge}},
       kRange,
       kPosition,
       "packed.lengths[0]",
       {"9223372036854775807"}},
      {"PaddedTooShort",
       PaddedScheme{{2, 5}, 4, false, 0},
       kInvalid,
       kBad,
       "padded.lengths[1]",
       {"5", "4"}},
      {"PaddedNegative",
       PaddedScheme{{2}, -4, false, 0},
       kInvalid,
       kBad,
       "padded.padded_length",
       {"-4"}},
      {"PaddedFar",
       PaddedScheme{{2}, kMax + 2, false, 0},
       kRange,
       kPosition,
       "padded.padded_length",
       {"2147483649"}},
      {"PaddingFar",
       PaddedScheme{{2}, 4, false, kMax + 1},
       kRange,
       kPosition,
       "padded.padding_position",
       {"2147483648"}},
      {"PaddingFarBelow",
       PaddedScheme{{2}, 4, false, -kMax - 2},
       kRange,
       kPosition,
       "padded.padding_position",
       {"-2147483649"}},
      {"NoDevices",
       ContextParallelScheme{{8}, 0, 0},
       kInvalid,
       kRequired,
       "context_parallel.size",
       {}},
      {"RankOfAnother",
       ContextParallelScheme{{8}, 2, 2},
       kInvalid,
       kBad,
       "context_parallel.rank",
       {"2", "0 to 1"}},
      {"RankBelowZero",
       ContextParallelScheme{{8}, 2, -1},
       kInvalid,
       kBad,
       "context_parallel.rank",
       {"-1"}},
      {"DoesNotDivide",
       ContextParallelScheme{{8, 10}, 2, 1},
       kInvalid,
       kBad,
       "context_parallel.lengths[1]",
       {"10", "4", "12"}},
      {"ContextNegative",
       ContextParallelScheme{{-8}, 2, 1},
       kInvalid,
       kBad,
       "context_parallel.lengths[0]",
       {"-8"}},
      {"ManyDevices",
       ContextParallelScheme{{8}, 2147483647, 1},
       kInvalid,
       kBad,
       "context_parallel.lengths[0]",
       {"4294967294"}},
      {"NoGrid", GridScheme{}, kInvalid, kRequired, "grid.extents", {}},
      {"EmptyAxis",
       GridScheme{{2, 0}, {}, {}, 0},
       kInvalid,
       kBad,
       "grid.extents[1]",
       {"0", "at least 1"}},
      {"NegativeAxis",
       GridScheme{{-2, 2}, {}, {}, 0},
       kInvalid,
       kBad,
       "grid.extents[0]",
       {"-2"}},
      {"GridOverflows",
       GridScheme{{1 << 30, 1 << 30, 1 << 30}, {}, {}, 0},
       kInvalid,
       kBad,
       "grid.extents",
       {"2^62"}},
      {"LongAxis",
       GridScheme{{kHuge}, {}, {}, 0},
       kRange,
       kPosition,
       "grid.extents[0]",
       {"9223372036854775807"}},
      {"OffsetsOfAnotherGrid",
       GridScheme{{2, 2}, {1}, {}, 0},
       kInvalid,
       kBad,
       "grid.offsets",
       {"1", "2"}},
      {"StepsOfAnotherGrid",
       GridScheme{{2}, {}, {1, 1}, 0},
       kInvalid,
       kBad,
       "grid.steps",
       {"2", "1"}},
      {"OffsetNan",
       GridScheme{{2, 2}, {1, kNan}, {}, 0},
       kInvalid,
       kBad,
       "grid.offsets[1]",
       {"nan"}},
      {"StepInfinite",
       GridScheme{{2}, {}, {kInfinity}, 0},
       kInvalid,
       kBad,
       "grid.steps[0]",
       {"inf"}},
      {"StepsLeadTooFar",
       GridScheme{{2, 3}, {0, 0}, {1, 1.5e9}, 0},
       kRange,
       kPosition,
       "grid.extents[1]",
       {"3", "3e+09"}},
      {"OffsetTooFar",
       GridScheme{{2}, {-3e9}, {}, 0},
       kRange,
       kPosition,
       "grid.extents[0]",
       {"-3e+09"}},
      {"MergeNegative",
       GridScheme{{4, 4}, {}, {}, -2},
       kInvalid,
       kBad,
       "grid.merge_size",
       {"-2"}},
      {"MergeOfOneAxis",
       GridScheme{{4}, {}, {}, 2},
       kInvalid,
       kBad,
       "grid.merge_size",
       {"2", "one axis"}},
      {"MergeDoesNotDivide",
       GridScheme{{4, 6, 5}, {}, {}, 2},
       kInvalid,
       kBad,
       "grid.extents[2]",
       {"5", "2"}},
      {"NoSpans",
       MultimodalScheme{},
       kInvalid,
       kRequired,
       "multimodal.spans",
       {}},
      {"EmptySpan",
       MultimodalScheme{{std::int64_t{3}, std::monostate()}},
       kInvalid,
       kRequired,
       "multimodal.spans[1]",
       {"text_tokens", "vision"}},
      {"NegativeText",
       MultimodalScheme{{std::int64_t{-3}}},
       kInvalid,
       kBad,
       "multimodal.spans[0].text_tokens",
       {"-3"}},
      {"TextTooFar",
       MultimodalScheme{{kMax, std::int64_t{2}}},
       kRange,
       kPosition,
       "multimodal.spans[1].text_tokens",
       {"2147483648", "2147483647"}},
      {"NoTime",
       Spans(Vision(0, 2, 2)),
       kInvalid,
       kBad,
       "multimodal.spans[0].vision.time",
       {"0"}},
      {"HeightNotMerged",
       Spans(Vision(1, 3, 4, 2)),
       kInvalid,
       kBad,
       "multimodal.spans[0].vision.height",
       {"3", "2"}},
      {"WidthNotMerged",
       Spans(Vision(1, 4, 5, 2)),
       kInvalid,
       kBad,
       "multimodal.spans[0].vision.width",
       {"5", "2"}},
      {"NegativeWidth",
       Spans(Vision(1, 4, -4, 2)),
       kInvalid,
       kBad,
       "multimodal.spans[0].vision.width",
       {"-4"}},
      {"NegativeMerge",
       Spans(Vision(1, 4, 4, -2)),
       kInvalid,
       kBad,
       "multimodal.spans[0].vision.spatial_merge_size",
       {"-2"}},
      {"NegativeTimeStep",
       Spans(WithStep(-0.5)),
       kInvalid,
       kBad,
       "multimodal.spans[0].vision.time_step",
       {"-0.5"}},
      {"TimeStepNan",
       Spans(WithStep(kNan)),
       kInvalid,
       kBad,
       "multimodal.spans[0].vision.time_step",
       {"nan"}},
      {"TimeStepTooLong",
       Spans(WithStep(3e9)),
       kRange,
       kPosition,
       "multimodal.spans[0].vision",
       {"3e+09"}},
      {"TimeStepOverflows",
       Spans(WithStep(1e308)),
       kRange,
       kPosition,
       "multimodal.spans[0].vision",
       {"1e+308"}},
      {"VisionOverflows",
       Spans(Vision(kHuge, kHuge, kHuge)),
       kInvalid,
       kBad,
       "multimodal.spans[0].vision",
       {"2^62"}},
      {"VisionTooHigh",
       Spans(Vision(1, kMax + 2, 1)),
       kRange,
       kPosition,
       "multimodal.spans[0].vision",
       {"2147483648"}},
      {"SpansOverflow",
       MultimodalScheme{{Vision(1 << 20, 1 << 20, 1 << 20),
                         Vision(1 << 20, 1 << 20, 1 << 20),
                         Vision(1 << 20, 1 << 20, 1 << 20)}},
       kInvalid,
       kBad,
       "multimodal.spans[1].vision",
       {"2^62"}},
      {"NegativeSinks",
       AttentionSinkScheme{-1, 2, 8},
       kInvalid,
       kBad,
       "attention_sinks.sinks",
       {"-1"}},
      {"NegativeWindow",
       AttentionSinkScheme{1, -2, 8},
       kInvalid,
       kBad,
       "attention_sinks.window",
       {"-2"}},
      {"NothingKept",
       AttentionSinkScheme{0, 0, 8},
       kInvalid,
       kRequired,
       "attention_sinks.window",
       {}},
      {"CacheTooLong",
       AttentionSinkScheme{4, 8, kMax + 2},
       kRange,
       kPosition,
       "attention_sinks.length",
       {"2147483649"}},
  };
  for (const BadScheme& bad : cases) {
    SCOPED_TRACE(bad.name);
    const absl::Status status = ValidateScheme(bad.scheme).status();
    EXPECT_EQ(status.code(), bad.code) << status;
    const std::optional<ErrorDetails> details = GetErrorDetails(status);
    ASSERT_TRUE(details.has_value()) << status;
    EXPECT_EQ(details->reason, bad.reason) << status;
    EXPECT_EQ(details->field, bad.field);
    for (const char* text : bad.says) {
      EXPECT_THAT(std::string(status.message()), HasSubstr(text));
    }
    if (bad.reason == kPosition) {
      ASSERT_FALSE(details->metadata.empty());
      EXPECT_EQ(details->metadata[0].first, "index");
    }
  }
}

}  // namespace
}  // namespace posenc::core
