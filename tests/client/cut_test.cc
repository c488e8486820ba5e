// Tensors cut into parts: together they are the whole, token by token.

#include "client/cpp/cut.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace posenc {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr v1::Layout kLayouts[] = {v1::LAYOUT_BSHD, v1::LAYOUT_BHSD,
                                   v1::LAYOUT_SBHD, v1::LAYOUT_THD};
constexpr std::int64_t kChannels = 2;
constexpr std::int64_t kElement = 2;  // bytes of a bfloat16

std::vector<std::int64_t> ShapeOf(v1::Layout layout, std::int64_t b,
                                  std::int64_t s, std::int64_t h) {
  switch (layout) {
    case v1::LAYOUT_BSHD:
      return {b, s, h, kChannels};
    case v1::LAYOUT_BHSD:
      return {b, h, s, kChannels};
    case v1::LAYOUT_SBHD:
      return {s, b, h, kChannels};
    default:
      return {s, h, kChannels};
  }
}

// Returns the offset of a token's head in a tensor of this shape, in elements.
std::int64_t HeadAt(v1::Layout layout, const std::vector<std::int64_t>& n,
                    std::int64_t b, std::int64_t t, std::int64_t h) {
  switch (layout) {
    case v1::LAYOUT_BSHD:
      return ((b * n[1] + t) * n[2] + h) * n[3];
    case v1::LAYOUT_BHSD:
      return ((b * n[1] + h) * n[2] + t) * n[3];
    case v1::LAYOUT_SBHD:
      return ((t * n[1] + b) * n[2] + h) * n[3];
    default:
      return (t * n[1] + h) * n[2];
  }
}

double IdAt(const v1::Tensor& ids, std::int64_t index) {
  if (ids.values_size() > 0) return ids.values(static_cast<int>(index));
  if (ids.dtype() == v1::DTYPE_INT32) {
    std::int32_t id;
    std::memcpy(&id, ids.data().data() + 4 * index, 4);
    return id;
  }
  std::int64_t id;
  std::memcpy(&id, ids.data().data() + 8 * index, 8);
  return static_cast<double>(id);
}

// Returns the id of token t on one axis, by the rules of posenc.v1.Positions.
double IdOf(const v1::Tensor& ids, v1::Layout layout, std::int64_t axes,
            std::int64_t axis, std::int64_t b, std::int64_t t) {
  const bool several = axes > 1;
  const std::int64_t tokens = ids.shape(ids.shape_size() - 1);
  const bool each =
      layout != v1::LAYOUT_THD && ids.shape_size() == (several ? 3 : 2);
  const std::int64_t batch = each ? ids.shape(ids.shape_size() - 2) : 1;
  std::int64_t count = 1;
  for (const std::int64_t extent : ids.shape()) count *= extent;
  EXPECT_EQ(count, (several ? axes : 1) * batch * tokens);
  const std::int64_t elements =
      ids.values_size() > 0 ? ids.values_size()
                            : static_cast<std::int64_t>(ids.data().size()) /
                                  (ids.dtype() == v1::DTYPE_INT32 ? 4 : 8);
  EXPECT_EQ(elements, count);
  return IdAt(ids,
              ((several ? axis : 0) * batch + (each ? b : 0)) * tokens + t);
}

double PositionOf(const v1::Positions& positions, v1::Layout layout,
                  std::int64_t axes, std::int64_t axis, std::int64_t b,
                  std::int64_t t) {
  switch (positions.kind_case()) {
    case v1::Positions::kStart:
      return static_cast<double>(positions.start() + t);
    case v1::Positions::kStarts:
      return static_cast<double>(
          positions.starts().values(static_cast<int>(b)) + t);
    case v1::Positions::kIds:
      return IdOf(positions.ids(), layout, axes, axis, b, t);
    case v1::Positions::kPacked: {
      const v1::PackedSequences& packed = positions.packed();
      for (int i = 0; i + 1 < packed.cu_seqlens_size(); ++i) {
        if (t < packed.cu_seqlens(i) || t >= packed.cu_seqlens(i + 1)) continue;
        const std::int64_t start =
            packed.starts_size() > 0 ? packed.starts(i) : 0;
        return static_cast<double>(start + t - packed.cu_seqlens(i));
      }
      ADD_FAILURE() << "token " << t << " is in no sequence";
      return 0;
    }
    default:
      ADD_FAILURE() << "no positions";
      return 0;
  }
}

enum class Form { kInt32, kInt64, kValues };

v1::Tensor Ids(std::vector<std::int64_t> shape, Form form) {
  v1::Tensor ids;
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) {
    ids.add_shape(extent);
    count *= extent;
  }
  ids.set_dtype(form == Form::kInt32   ? v1::DTYPE_INT32
                : form == Form::kInt64 ? v1::DTYPE_INT64
                                       : v1::DTYPE_FLOAT64);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t id = 1000 + 7 * i;  // all different
    const auto narrow = static_cast<std::int32_t>(id);
    if (form == Form::kValues) {
      ids.add_values(static_cast<double>(id));
    } else if (form == Form::kInt32) {
      ids.mutable_data()->append(reinterpret_cast<const char*>(&narrow), 4);
    } else {
      ids.mutable_data()->append(reinterpret_cast<const char*>(&id), 8);
    }
  }
  return ids;
}

struct Positioned {
  v1::Positions positions;
  std::int64_t axes = 1;
};

v1::Positions FromIds(v1::Tensor ids) {
  v1::Positions positions;
  *positions.mutable_ids() = std::move(ids);
  return positions;
}

v1::Positions Packed(std::vector<std::int64_t> ends,
                     std::vector<std::int64_t> starts) {
  v1::Positions positions;
  positions.mutable_packed();
  for (const std::int64_t end : ends) {
    positions.mutable_packed()->add_cu_seqlens(end);
  }
  for (const std::int64_t start : starts) {
    positions.mutable_packed()->add_starts(start);
  }
  return positions;
}

// Returns every kind of positions that the layout allows.
std::vector<Positioned> AllPositions(v1::Layout layout, std::int64_t b,
                                     std::int64_t s) {
  std::vector<Positioned> all;
  v1::Positions start;
  start.set_start(-3);
  all.push_back({start});
  const bool packed = layout == v1::LAYOUT_THD;
  for (const Form form : {Form::kInt32, Form::kInt64, Form::kValues}) {
    all.push_back({FromIds(Ids({s}, form))});
    all.push_back({FromIds(Ids({3, s}, form)), 3});
    if (packed) continue;
    all.push_back({FromIds(Ids({b, s}, form))});
    all.push_back({FromIds(Ids({3, b, s}, form)), 3});
  }
  if (packed) {
    // All ways to have three sequences, also empty ones.
    for (std::int64_t i = 0; i <= s; ++i) {
      for (std::int64_t j = i; j <= s; ++j) {
        all.push_back({Packed({0, i, j, s}, {})});
        all.push_back({Packed({0, i, j, s}, {5, -40, 300})});
      }
    }
  } else {
    v1::Positions starts;
    for (std::int64_t i = 0; i < b; ++i) {
      starts.mutable_starts()->add_values(100 * i - 7);
    }
    all.push_back({starts});
  }
  return all;
}

// Every token of every head is in one part, at its place and position.
TEST(CutTest, PartsTogetherAreTheWhole) {
  std::int64_t cuts = 0;
  for (const v1::Layout layout : kLayouts) {
    for (const std::int64_t b : {1, 2, 3}) {
      if (layout == v1::LAYOUT_THD && b > 1) continue;
      for (const std::int64_t s : {1, 2, 3, 5}) {
        for (const std::int64_t h : {1, 2, 3}) {
          const std::vector<std::int64_t> shape = ShapeOf(layout, b, s, h);
          const std::string bytes(b * s * h * kChannels * kElement, 'x');
          const TensorView tensor{v1::DTYPE_BFLOAT16, shape, bytes};
          const std::vector<Positioned> all = AllPositions(layout, b, s);
          const auto total = static_cast<std::int64_t>(bytes.size());
          for (std::int64_t max = 1; max <= total + 1; ++max) {
            for (const bool whole_heads : {false, true}) {
              SCOPED_TRACE(absl::StrCat(v1::Layout_Name(layout), " ", b, " ", s,
                                        " ", h, " max ", max));
              const auto parts = CutTensor(tensor, layout, whole_heads, max);
              ASSERT_TRUE(parts.ok()) << parts.status();
              std::int64_t offset = 0;
              std::vector<int> seen(b * s * h);
              for (const Part& part : *parts) {
                ASSERT_EQ(part.offset, offset);
                offset += part.bytes;
                for (auto t = part.token_begin; t < part.token_end; ++t) {
                  for (auto i = part.batch_begin; i < part.batch_end; ++i) {
                    for (auto j = part.head_begin; j < part.head_end; ++j) {
                      const std::int64_t there =
                          part.offset / kElement +
                          HeadAt(layout, part.shape, i - part.batch_begin,
                                 t - part.token_begin, j - part.head_begin);
                      ASSERT_EQ(there, HeadAt(layout, shape, i, t, j));
                      ++seen[(i * s + t) * h + j];
                    }
                  }
                }
                if (whole_heads) {
                  ASSERT_EQ(part.head_end - part.head_begin, h);
                }
                for (const Positioned& whole : all) {
                  ++cuts;
                  const auto cut =
                      CutPositions(whole.positions, layout,
                                   {b, s, h, kChannels}, whole.axes > 1, part);
                  ASSERT_TRUE(cut.ok()) << cut.status();
                  ASSERT_EQ(cut->kind_case(), whole.positions.kind_case());
                  for (std::int64_t axis = 0; axis < whole.axes; ++axis) {
                    for (auto i = part.batch_begin; i < part.batch_end; ++i) {
                      for (auto t = part.token_begin; t < part.token_end; ++t) {
                        ASSERT_EQ(PositionOf(*cut, layout, whole.axes, axis,
                                             i - part.batch_begin,
                                             t - part.token_begin),
                                  PositionOf(whole.positions, layout,
                                             whole.axes, axis, i, t));
                      }
                    }
                  }
                }
              }
              ASSERT_EQ(offset, total);
              ASSERT_THAT(seen, testing::Each(1));
            }
          }
        }
      }
    }
  }
  EXPECT_GT(cuts, 100000);
}

// A part exceeds the requested size only if no smaller part is possible.
TEST(CutTest, PartsAreAsLargeAsTheyMayBe) {
  for (const v1::Layout layout : kLayouts) {
    const std::int64_t b = layout == v1::LAYOUT_THD ? 1 : 3, s = 5, h = 2;
    const std::string bytes(b * s * h * kChannels * kElement, 'x');
    const TensorView tensor{v1::DTYPE_BFLOAT16, ShapeOf(layout, b, s, h),
                            bytes};
    for (std::int64_t max = 1; max <= static_cast<std::int64_t>(bytes.size());
         ++max) {
      const auto parts = CutTensor(tensor, layout, false, max);
      ASSERT_TRUE(parts.ok());
      const std::int64_t least =
          kChannels * kElement * (layout == v1::LAYOUT_BHSD ? 1 : h);
      for (const Part& part : *parts) {
        EXPECT_LE(part.bytes, std::max(max, least));
      }
    }
    EXPECT_EQ(CutTensor(tensor, layout, false, bytes.size())->size(), 1u);
  }
}

TEST(CutTest, HeadsThatStayTogetherAreCutByBatchAlone) {
  const std::string bytes(2 * 3 * 4 * kChannels * kElement, 'x');
  const auto parts = CutTensor(
      {v1::DTYPE_BFLOAT16, {2, 3, 4, kChannels}, bytes}, v1::LAYOUT_BHSD,
      /*whole_heads=*/true, 1);

  ASSERT_TRUE(parts.ok());
  ASSERT_EQ(parts->size(), 2u);
  EXPECT_THAT((*parts)[1].shape, ElementsAre(1, 3, 4, kChannels));
}

TEST(CutTest, MovementsAreCutInAllTheirParts) {
  const HeadExtents extents{2, 5, 1, kChannels};
  Part part;
  part.batch_begin = 1, part.batch_end = 2;
  part.token_begin = 2, part.token_end = 4;
  v1::Movement movement;
  movement.mutable_old_positions()->set_start(10);
  *movement.mutable_new_positions() = FromIds(Ids({2, 5}, Form::kInt64));

  auto cut = CutMovement(movement, v1::LAYOUT_BSHD, extents, false, part);
  ASSERT_TRUE(cut.ok()) << cut.status();
  EXPECT_EQ(cut->old_positions().start(), 12);
  EXPECT_EQ(IdAt(cut->new_positions().ids(), 0), 1000 + 7 * 7);
  EXPECT_THAT(cut->new_positions().ids().shape(), ElementsAre(1, 2));

  *movement.mutable_shifts() = Ids({5}, Form::kInt32);
  cut = CutMovement(movement, v1::LAYOUT_BSHD, extents, false, part);
  ASSERT_TRUE(cut.ok()) << cut.status();
  EXPECT_EQ(cut->target_case(), v1::Movement::kShifts);
  EXPECT_EQ(IdAt(cut->shifts(), 1), 1000 + 7 * 3);

  movement.set_shift(0);
  cut = CutMovement(movement, v1::LAYOUT_BSHD, extents, false, part);
  ASSERT_TRUE(cut.ok()) << cut.status();
  EXPECT_EQ(cut->target_case(), v1::Movement::kShift);

  movement.Clear();
  cut = CutMovement(movement, v1::LAYOUT_BSHD, extents, false, part);
  ASSERT_TRUE(cut.ok()) << cut.status();
  EXPECT_EQ(cut->ByteSizeLong(), 0u);
}

TEST(CutTest, OnlyIdsOfTwoExtentsThatMayBeEitherNeedTheAxes) {
  const HeadExtents three{3, 5, 1, kChannels}, one{1, 5, 1, kChannels};
  const auto ids = [](std::vector<std::int64_t> shape) {
    return FromIds(Ids(std::move(shape), Form::kInt32));
  };

  EXPECT_TRUE(NeedAxes(ids({3, 5}), v1::LAYOUT_BSHD, three));
  EXPECT_FALSE(NeedAxes(ids({2, 5}), v1::LAYOUT_BSHD, three));
  EXPECT_FALSE(NeedAxes(ids({1, 5}), v1::LAYOUT_BSHD, one));
  EXPECT_FALSE(NeedAxes(ids({3, 5}), v1::LAYOUT_THD, three));
  EXPECT_FALSE(NeedAxes(ids({5}), v1::LAYOUT_BSHD, three));
  EXPECT_FALSE(NeedAxes(StartAt(1), v1::LAYOUT_BSHD, three));
}

TEST(CutTest, ShapesThatAreNoneOfTheLayoutAreRefused) {
  const std::string bytes(16, 'x');
  const std::vector<std::vector<std::int64_t>> shapes = {
      {},
      {4, 2},
      {2, 2, 2, 2, 1},
      {1, 2, 2, 3},
      {1, 2, 0, 2},
      {-1, 2, 2, 2},
      {1, 4, 4, 1},
      {std::int64_t{1} << 62, 4, 4, 4}};
  for (const auto& shape : shapes) {
    EXPECT_EQ(
        CutTensor({v1::DTYPE_BFLOAT16, shape, bytes}, v1::LAYOUT_BSHD, false, 4)
            .status()
            .code(),
        absl::StatusCode::kInvalidArgument);
  }
  EXPECT_FALSE(CutTensor({v1::DTYPE_BFLOAT16, {1, 2, 2, 2}, bytes},
                         v1::LAYOUT_UNSPECIFIED, false, 4)
                   .ok());
  EXPECT_FALSE(CutTensor({v1::DTYPE_UNSPECIFIED, {1, 2, 2, 2}, bytes},
                         v1::LAYOUT_BSHD, false, 4)
                   .ok());
}

TEST(CutTest, PositionsOfOtherTokensAreRefused) {
  const HeadExtents extents{2, 5, 1, kChannels};
  Part part;
  part.batch_end = 1, part.token_end = 2, part.head_end = 1;
  v1::Tensor torn = Ids({5}, Form::kInt64);
  torn.mutable_data()->pop_back();
  v1::Positions starts;
  starts.mutable_starts()->add_values(1);
  std::vector<v1::Positions> wrong = {FromIds(Ids({}, Form::kInt64)),
                                      FromIds(Ids({4}, Form::kInt64)),
                                      FromIds(Ids({2, 4}, Form::kInt64)),
                                      FromIds(Ids({3, 3, 5}, Form::kInt64)),
                                      FromIds(Ids({1, 3, 2, 5}, Form::kInt64)),
                                      FromIds(torn),
                                      starts,
                                      Packed({0, 5}, {})};
  torn = Ids({5}, Form::kValues);
  torn.mutable_values()->RemoveLast();
  wrong.push_back(FromIds(torn));
  for (const v1::Positions& positions : wrong) {
    const auto cut =
        CutPositions(positions, v1::LAYOUT_BSHD, extents, false, part);
    EXPECT_EQ(cut.status().code(), absl::StatusCode::kInvalidArgument)
        << positions.ShortDebugString();
    EXPECT_THAT(std::string(cut.status().message()),
                HasSubstr("cannot be cut into parts"));
  }
  for (const v1::Positions& positions :
       {Packed({}, {}), Packed({0}, {}), Packed({1, 5}, {}), Packed({0, 4}, {}),
        Packed({0, 3, 2, 5}, {}), Packed({0, 5}, {1, 2}), Packed({0, 6}, {})}) {
    EXPECT_EQ(CutPositions(positions, v1::LAYOUT_THD, {1, 5, 1, kChannels},
                           false, part)
                  .status()
                  .code(),
              absl::StatusCode::kInvalidArgument)
        << positions.ShortDebugString();
  }
}

TEST(CutTest, PositionsThatNoServerTakesDoNotOverflow) {
  const std::int64_t max = std::numeric_limits<std::int64_t>::max();
  Part part;
  part.token_begin = 3, part.token_end = 5, part.batch_end = 1;

  const auto cut = CutPositions(StartAt(max), v1::LAYOUT_BSHD,
                                {1, 5, 1, kChannels}, false, part);

  ASSERT_TRUE(cut.ok());
  EXPECT_EQ(cut->start(), max);
}

}  // namespace
}  // namespace posenc
