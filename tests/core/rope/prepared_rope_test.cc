// An encoding that many calls have used gives the same bytes as a fresh
// encoding.

#include "core/rope/prepared_rope.h"

#include <cstdint>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "core/interpretation/source.h"
#include "core/rotation/apply.h"
#include "gtest/gtest.h"
#include "tests/reference/apply_reference.h"

namespace posenc::test {
namespace {

// Makes jobs of one encoding, with a few positions in all forms.
class Jobs {
 public:
  explicit Jobs(int seed) : random_(seed) {}

  // Runs one job. Expects the same bytes from `rope`, which other jobs have
  // used, and from an encoding that is resolved only for this job.
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
    args.rope = core::interpretation::LookupOf(spec);
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
  const auto prepared = core::interpretation::LookupOf(spec)(32);
  EXPECT_TRUE(prepared.ok()) << prepared.status();
  return [prepared = *prepared](std::int64_t) { return prepared; };
}

TEST(PreparedRopeTest, BytesDoNotDependOnEarlierUse) {
  Jobs jobs(1);
  for (const core::RopeSpec& spec : Specs()) {
    const core::RopeLookup rope = Prepared(spec);
    for (int i = 0; i < 1000; ++i) jobs.Run(spec, rope);
  }
}

TEST(PreparedRopeTest, ThreadsMayShareIt) {
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

}  // namespace
}  // namespace posenc::test
