// Position schemes: published examples, properties of larger ids, and limits.
// The conformance vectors have ids of every scheme.

#include "core/positions/position_schemes.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fixtures/core/position_schemes.h"

namespace posenc::core {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;

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
  // The exact size, so that a sanitizer detects every extra byte.
  std::vector<char> bytes(count * DtypeSize(extents->dtype));
  const TensorView view = {extents->dtype, extents->shape, bytes.data()};
  // Fills the positions in small ranges, as the tiles of a server do.
  constexpr std::int64_t kRange = 5;
  for (std::int64_t begin = 0; begin < count; begin += kRange) {
    FillPositions(scheme, begin, std::min(begin + kRange, count),
                  bytes.data() + begin * DtypeSize(extents->dtype));
  }
  for (std::int64_t i = 0; i < count; ++i) {
    out.ids.push_back(
        ElementAsDouble({view.dtype, view.shape, bytes.data()}, i));
  }
  return out;
}

TEST(PackedSchemeTest, NoSequencesHaveNoPositions) {
  EXPECT_THAT(Build(PackedScheme{}).extents.shape, ElementsAre(0));
  EXPECT_THAT(Build(PaddedScheme{{}, 4, false, 0}).extents.shape,
              ElementsAre(0, 4));
  EXPECT_THAT(Build(ContextParallelScheme{{}, 2, 1}).extents.shape,
              ElementsAre(0));
}

// Empty sequences have no positions, so a range may begin behind any number of
// empty sequences. The walk over these sequences must also ask whether to stop.
TEST(PositionSchemeTest, AWalkOverSequencesCanBeStopped) {
  const std::vector<std::int64_t> lengths(1 << 21, 0);
  for (const bool stops : {false, true}) {
    int asked = 0;
    std::int32_t position = -1;
    PackedScheme packed = {lengths};
    packed.lengths.push_back(1);
    FillPositions(packed, 0, 1, reinterpret_cast<char*>(&position), [&] {
      ++asked;
      return stops;
    });
    EXPECT_EQ(asked, stops ? 1 : 2);
    EXPECT_EQ(position, stops ? -1 : 0);
  }
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
  // Zig-zag chunks let every device attend to the same number of keys.
  EXPECT_THAT(work, testing::Each(work[0]));
}

TEST(GridSchemeTest, MergeLeavesOuterAxesRowMajor) {
  const GridScheme grid{{2, 3, 2, 6}, {}, {}, 2};
  const Built built = Build(grid);
  // The order that position_schemes.h gives for merge_size.
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

// The example of Qwen2.5-VL's get_rope_index: the same video, with 50 positions
// between frames.
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

TEST(MultimodalSchemeTest, NoTextTokensLeaveTheSequenceWhereItIs) {
  EXPECT_EQ(Build(MultimodalScheme{{std::int64_t{0}, Vision(1, 2, 2),
                                    std::int64_t{0}, std::int64_t{1}}})
                .ids,
            Build(MultimodalScheme{{Vision(1, 2, 2), std::int64_t{1}}}).ids);
}

TEST(AttentionSinkSchemeTest, ACacheThatIsNotFullKeepsAll) {
  const Built built = Build(AttentionSinkScheme{2, 3, 4});
  EXPECT_THAT(built.ids, ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(built.extents.next_position, 4);
  EXPECT_THAT(Build(AttentionSinkScheme{4, 0, 2}).ids, ElementsAre(0, 1));
  EXPECT_THAT(Build(AttentionSinkScheme{4, 4, 0}).extents.shape,
              ElementsAre(0));
}

TEST(AttentionSinkSchemeTest, SinksAndWindowsBeyondTheCacheAreCutToIt) {
  constexpr std::int64_t kGreatest = std::numeric_limits<std::int64_t>::max();
  for (const auto& [sinks, window] :
       {std::pair(kGreatest, kGreatest), std::pair(std::int64_t{10}, kGreatest),
        std::pair(kGreatest, std::int64_t{0})}) {
    const Built built = Build(AttentionSinkScheme{sinks, window, 4});
    EXPECT_THAT(built.ids, ElementsAre(0, 1, 2, 3)) << sinks << " " << window;
    EXPECT_EQ(built.extents.next_position, 4);
  }
  EXPECT_THAT(Build(AttentionSinkScheme{1, kGreatest, 3}).ids,
              ElementsAre(0, 1, 2));
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

}  // namespace
}  // namespace posenc::core
