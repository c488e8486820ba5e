// Rows that earlier calls have left: found by calls that need just these, and
// no byte of a result tells.

#include "core/rope/recent_rows.h"

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "core/model/source.h"
#include "core/rope/apply.h"
#include "gtest/gtest.h"
#include "tests/reference/apply_reference.h"

namespace posenc::test {
namespace {

using core::CosSinTable;
using core::RecentRows;
using core::TokenPositions;

std::shared_ptr<const TokenPositions> At(std::vector<double> values,
                                         int axes = 1, std::int64_t batch = 1) {
  const auto tokens = static_cast<std::int64_t>(values.size()) / (axes * batch);
  return std::make_shared<const TokenPositions>(std::move(values), axes, batch,
                                                tokens);
}

RecentRows::Key Key(std::vector<double> positions) {
  return {false, 1, false, At(std::move(positions))};
}

std::shared_ptr<const CosSinTable> Rows(std::size_t values = 2) {
  return std::make_shared<const CosSinTable>(false, values, 1, false);
}

TEST(RecentRowsTest, FindsRowsOfEqualPositions) {
  RecentRows recent;
  EXPECT_EQ(recent.Find(Key({1, 2})), nullptr);
  const auto rows = Rows();
  recent.Keep(Key({1, 2}), rows);
  EXPECT_EQ(recent.Find(Key({1, 2})), rows);
}

TEST(RecentRowsTest, WhatDiffersInAnythingIsNotFound) {
  RecentRows recent;
  recent.Keep({false, 1, false, At({0, 1, 2, 3})}, Rows());
  EXPECT_NE(recent.Find({false, 1, false, At({0, 1, 2, 3})}), nullptr);
  EXPECT_EQ(recent.Find({true, 1, false, At({0, 1, 2, 3})}), nullptr);
  EXPECT_EQ(recent.Find({false, 2, false, At({0, 1, 2, 3})}), nullptr);
  EXPECT_EQ(recent.Find({false, 1, true, At({0, 1, 2, 3})}), nullptr);
  EXPECT_EQ(recent.Find({false, 1, false, At({0, 1, 2})}), nullptr);
  EXPECT_EQ(recent.Find({false, 1, false, At({0, 1, 2, 4})}), nullptr);
  EXPECT_EQ(recent.Find({false, 1, false, At({-0.0, 1, 2, 3})}), nullptr);
  EXPECT_EQ(recent.Find({false, 1, false, At({0, 1, 2, 3}, 2)}), nullptr);
  EXPECT_EQ(recent.Find({false, 1, false, At({0, 1, 2, 3}, 1, 2)}), nullptr);
}

TEST(RecentRowsTest, TheLeastRecentlyUsedGoFirst) {
  RecentRows recent;
  // Three of them are kept: a position takes 8 bytes.
  constexpr std::size_t kThird = (RecentRows::kMaxBytes / 3 - 8) / 4;
  for (const double p : {0.0, 1.0, 2.0}) recent.Keep(Key({p}), Rows(kThird));
  EXPECT_NE(recent.Find(Key({0})), nullptr);
  recent.Keep(Key({3}), Rows(kThird));
  EXPECT_NE(recent.Find(Key({0})), nullptr);
  EXPECT_EQ(recent.Find(Key({1})), nullptr);
  EXPECT_NE(recent.Find(Key({2})), nullptr);
  EXPECT_NE(recent.Find(Key({3})), nullptr);
}

TEST(RecentRowsTest, TwoOfTheLargestCallsAreKept) {
  RecentRows recent;
  const auto positions = [](int first) {
    std::vector<double> values(128);
    std::iota(values.begin(), values.end(), first);
    return values;
  };
  const auto rows = std::make_shared<const CosSinTable>(false, 128, 128, false);
  ASSERT_EQ(rows->bytes(), RecentRows::kMaxCallBytes);
  for (const int first : {0, 128}) recent.Keep(Key(positions(first)), rows);
  EXPECT_EQ(recent.Find(Key(positions(0))), rows);
  EXPECT_EQ(recent.Find(Key(positions(128))), rows);
  // What is too large drives out nothing.
  recent.Keep(Key(std::vector<double>(RecentRows::kMaxBytes / 8)), Rows());
  EXPECT_EQ(recent.Find(Key(positions(0))), rows);
}

TEST(RecentRowsTest, SmallRowsAreFewToo) {
  RecentRows recent;
  for (int p = 0; p < 1000; ++p) {
    recent.Keep(Key({static_cast<double>(p)}), Rows());
  }
  int found = 0;
  for (int p = 0; p < 1000; ++p) {
    found += recent.Find(Key({static_cast<double>(p)})) != nullptr ? 1 : 0;
  }
  EXPECT_EQ(found, 16);
}

// What many calls with one encoding ask for: a few positions in all ways.
class Jobs {
 public:
  explicit Jobs(int seed) : random_(seed) {}

  // One job: the same bytes from `rope`, which others have used, and from an
  // encoding that is resolved for it alone.
  void Run(const core::RopeSpec& spec, const core::RopeLookup& rope) {
    const core::Layout layout = Any<core::Layout>(
        {core::Layout::kBshd, core::Layout::kBhsd, core::Layout::kSbhd});
    const Extents extents = {Any<std::int64_t>({1, 3}),
                             Any<std::int64_t>({2, 9, 33}),
                             Any<std::int64_t>({1, 4}), 32};
    Tensor q(Any<core::Dtype>({core::Dtype::kFloat32, core::Dtype::kBfloat16,
                               core::Dtype::kFloat64}),
             layout, extents);
    q.Fill(random_);
    Tensor k = q;
    core::ApplyRopeArgs args;
    args.layout = layout;
    args.direction = Any<core::Direction>({core::Direction::kForward,
                                           core::Direction::kInverse,
                                           core::Direction::kAdjoint});
    Grid grid{1, extents.batch, extents.tokens, {}};
    for (std::int64_t b = 0; b < extents.batch; ++b) {
      for (std::int64_t t = 0; t < extents.tokens; ++t) {
        grid.values.push_back(t == 0 ? Any<double>({0, -0.0, 5, 5.5})
                                     : static_cast<double>(7 * b + t));
      }
    }
    switch (random_() % 3) {
      case 0:
        args.positions = core::StartPosition{Any<std::int64_t>({0, 5})};
        break;
      case 1:
        args.positions = core::SequenceStarts{
            std::vector<std::int64_t>(extents.batch, Any<int>({0, 5}))};
        break;
      default:
        args.positions = grid.Ids(layout);
    }
    if (random_() % 4 == 0) args.query_scale = core::QueryScale{0.5, 4, 0};

    Tensor of_one[] = {q, k}, of_many[] = {q, k};
    args.rope = core::LookupOf(spec);
    Rotate(args, q, k, of_one);
    args.rope = rope;
    Rotate(args, q, k, of_many);
    for (int i = 0; i < 2; ++i) {
      ASSERT_EQ(std::memcmp(of_one[i].bytes.data(), of_many[i].bytes.data(),
                            of_one[i].bytes.size()),
                0);
    }
  }

 private:
  template <class T>
  T Any(const std::vector<T>& values) {
    return values[random_() % values.size()];
  }

  static void Rotate(const core::ApplyRopeArgs& args, const Tensor& q,
                     const Tensor& k, Tensor* out) {
    const core::ConstTensorView in[] = {q.in(), k.in()};
    const core::TensorView to[] = {out[0].out(), out[1].out()};
    const absl::Status status =
        core::ApplyRope(args, &in[0], &to[0], &in[1], &to[1]);
    ASSERT_TRUE(status.ok()) << status;
  }

  std::mt19937_64 random_;
};

std::vector<core::RopeSpec> Specs() {
  core::RopeSpec plain;
  plain.pairing = core::Pairing::kHalfSplit;
  core::RopeSpec scaled = plain;
  scaled.attention_factor = 1.25;
  scaled.rotary_dim = 16;
  core::RopeSpec xpos = plain;
  xpos.pairing = core::Pairing::kInterleaved;
  xpos.xpos = core::XPos{};
  return {plain, scaled, xpos};
}

core::RopeLookup Prepared(const core::RopeSpec& spec) {
  const auto prepared = core::LookupOf(spec)(32);
  EXPECT_TRUE(prepared.ok()) << prepared.status();
  return [prepared = *prepared](std::int64_t) { return prepared; };
}

TEST(RecentRowsTest, NoByteTellsThatRowsAreAnEarlierCalls) {
  Jobs jobs(1);
  for (const core::RopeSpec& spec : Specs()) {
    const core::RopeLookup rope = Prepared(spec);
    for (int i = 0; i < 1000; ++i) jobs.Run(spec, rope);
  }
}

TEST(RecentRowsTest, ThreadsMayShareThem) {
  for (const core::RopeSpec& spec : Specs()) {
    const core::RopeLookup rope = Prepared(spec);
    std::vector<std::thread> threads;
    for (int seed = 2; seed < 6; ++seed) {
      threads.emplace_back([&spec, &rope, seed] {
        Jobs jobs(seed);
        for (int i = 0; i < 200; ++i) jobs.Run(spec, rope);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

// The rows of a call's queries serve its keys, and those of the next layer.
TEST(RecentRowsTest, KeysAndLaterCallsFindTheRowsOfQueries) {
  const core::RopeSpec spec = Specs()[0];
  const core::RopeLookup rope = Prepared(spec);
  Tensor x(core::Dtype::kFloat32, core::Layout::kBshd, {1, 16, 2, 32});
  core::ApplyRopeArgs args;
  args.rope = rope;
  args.positions = core::StartPosition{100};
  std::vector<double> positions;
  for (int t = 0; t < 16; ++t) positions.push_back(100 + t);
  RecentRows& recent = (*rope(32))->frequencies->recent_rows();
  const RecentRows::Key key = Key(positions);
  const core::ConstTensorView in = x.in();
  EXPECT_EQ(recent.Find(key), nullptr);
  ASSERT_TRUE(core::PrepareApplyRope(args, &in, nullptr).ok());
  const std::shared_ptr<const CosSinTable> rows = recent.Find(key);
  ASSERT_NE(rows, nullptr);
  // Held here and there, and by the maps of both tensors.
  const auto rotations = core::PrepareApplyRope(args, &in, &in);
  ASSERT_TRUE(rotations.ok());
  EXPECT_EQ(rows.use_count(), 4);
}

}  // namespace
}  // namespace posenc::test
