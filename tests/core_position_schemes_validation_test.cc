// Position schemes that are refused: code, reason, field, numbers.

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/position_schemes.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace posenc::core {
namespace {

using testing::HasSubstr;

constexpr std::int64_t kMax = 2147483647;

VisionGrid Vision(std::int64_t time, std::int64_t height, std::int64_t width,
                  std::int32_t merge = 0) {
  VisionGrid grid;
  grid.time = time;
  grid.height = height;
  grid.width = width;
  grid.spatial_merge_size = merge;
  return grid;
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
