// Repeated shifts, which other implementations get wrong: attention factors
// that grow with each shift, centers that move, partial heads, divided
// positions.

#include <cmath>
#include <random>

#include "gtest/gtest.h"
#include "tests/reference/reposition_reference.h"

namespace posenc::test {
namespace {

using core::Dtype;
using core::Layout;

core::RopeSpec Plain() {
  core::RopeSpec spec;
  spec.pairing = core::Pairing::kHalfSplit;
  return spec;
}

core::RopeSpec Yarn(double factor) {
  core::YarnScaling yarn;
  yarn.factor = factor;
  yarn.original_max_position_embeddings = 4096;
  core::RopeSpec spec = Plain();
  spec.scaling = yarn;
  return spec;
}

core::RopeSpec XPosAround(double center) {
  core::RopeSpec spec = Plain();
  spec.xpos = core::XPos{{}, {}, center};
  return spec;
}

Tensor Seeded(Dtype dtype, const Extents& extents, int seed) {
  std::mt19937_64 random(seed);
  Tensor tensor(dtype, Layout::kBshd, extents);
  tensor.Fill(random);
  return tensor;
}

Tensor ApplyAs(core::TensorRole role, const core::RopeSpec& spec,
               const core::Positions& positions, const Tensor& x) {
  core::ApplyRopeArgs args;
  args.rope = core::interpretation::LookupOf(spec);
  args.positions = positions;
  Tensor out = x;
  const core::ConstTensorView from = x.in();
  const core::TensorView to = out.out();
  const bool query = role == core::TensorRole::kQuery;
  const absl::Status status =
      query ? core::ApplyRope(args, &from, &to, nullptr, nullptr)
            : core::ApplyRope(args, nullptr, nullptr, &from, &to);
  EXPECT_TRUE(status.ok()) << status;
  return out;
}

Tensor Apply(const core::RopeSpec& spec, const core::Positions& positions,
             const Tensor& k) {
  return ApplyAs(core::TensorRole::kKey, spec, positions, k);
}

// Moves k in place.
void Shift(const core::RopeSpec& spec, std::int64_t shift, Tensor& k) {
  core::RepositionArgs args;
  args.old_rope = core::interpretation::LookupOf(spec);
  args.movement.target = core::ShiftAll{shift};
  const absl::Status status = core::Reposition(args, k.in(), k.out());
  ASSERT_TRUE(status.ok()) << status;
}

Tensor Move(const core::RopeSpec& from, const core::RopeSpec& to,
            const core::Movement& movement, const Tensor& k) {
  core::RepositionArgs args;
  args.old_rope = core::interpretation::LookupOf(from);
  args.new_rope = core::interpretation::LookupOf(to);
  args.movement = movement;
  Tensor out = k;
  const absl::Status status = core::Reposition(args, k.in(), out.out());
  EXPECT_TRUE(status.ok()) << status;
  return out;
}

// Length of pair i of a half-split slice of `width` channels.
double Length(const Tensor& k, std::int64_t t, int i, int width) {
  return std::hypot(k.At(0, t, 0, i), k.At(0, t, 0, i + width / 2));
}

// Expects that elements of two tensors differ by at most `relative` of the
// pair's length in `expected`, plus `absolute`.
void ExpectClose(const Tensor& expected, const Tensor& actual, int width,
                 double relative, double absolute = 0) {
  for (std::int64_t t = 0; t < expected.extents.tokens; ++t)
    for (int d = 0; d < width; ++d) {
      const double length = Length(expected, t, d % (width / 2), width);
      ASSERT_NEAR(actual.At(0, t, 0, d), expected.At(0, t, 0, d),
                  relative * length + absolute)
          << "token " << t << " channel " << d;
    }
}

// Each of n shifts has an error of at most 3.83 * 2^-24 of the pair's length
// (PairBound), in any direction, so lengths drift by a factor within (1 +- 3.83
// * 2^-24)^n: 2.3e-4 for n = 1000. Applying the amplitude at each shift would
// give 1.1386^1000.
TEST(RepositionDriftTest, AThousandShiftsKeepTheAmplitudeOfYarn) {
  const core::RopeSpec spec = Yarn(4);
  const Tensor x = Seeded(Dtype::kFloat32, {1, 8, 1, 64}, 1);
  const Tensor start = Apply(spec, core::StartPosition{9000}, x);
  Tensor k = start;
  for (int n = 0; n < 1000; ++n) Shift(spec, n % 2 == 0 ? -7 : -2, k);
  const double drift =
      std::expm1(1000 * PairBound(Dtype::kFloat32, 1) * (1 + 1e-6));
  ASSERT_LT(drift, 2.3e-4);
  for (std::int64_t t = 0; t < 8; ++t)
    for (int i = 0; i < 32; ++i) {
      EXPECT_NEAR(Length(k, t, i, 64), Length(start, t, i, 64),
                  drift * Length(start, t, i, 64));
    }
  // Angles do not drift either: the same bound holds for the keys as vectors.
  // Applying at 9000 and at 4500 adds a PairBound and an ElementBound.
  ExpectClose(Apply(spec, core::StartPosition{4500}, x), k, 64,
              drift + PairBound(Dtype::kFloat32, 1) +
                  ElementBound(Dtype::kFloat32, 1) + drift * drift);
}

TEST(RepositionDriftTest, Disagreement20KShiftAmplitudeUnderYarn) {
  for (const double factor : {2.0, 4.0, 16.0, 64.0}) {
    const core::RopeSpec spec = Yarn(factor);
    const Tensor start = Apply(spec, core::StartPosition{100},
                               Seeded(Dtype::kFloat32, {1, 4, 1, 64}, 2));
    const double amplitude = 1 + 0.1 * std::log(factor);
    Tensor k = start;
    for (int n = 1; n <= 4; ++n) {
      Shift(spec, 1000, k);
      // Measured drift for factor 2, if the shift applies YaRN's parameters
      // again.
      constexpr double kMeasured[] = {1.06931, 1.14342, 1.22270, 1.30747};
      const double wrong = std::pow(amplitude, n);
      if (factor == 2) {
        EXPECT_NEAR(wrong, kMeasured[n - 1], 5e-5);
      }
      for (std::int64_t t = 0; t < 4; ++t)
        for (int i = 0; i < 32; ++i) {
          const double growth = Length(k, t, i, 64) / Length(start, t, i, 64);
          EXPECT_NEAR(growth, 1, n * PairBound(Dtype::kFloat32, 1.001));
          EXPECT_GT(wrong / growth, 1.069);
        }
    }
  }
}

double Score(const Tensor& q, std::int64_t i, const Tensor& k, std::int64_t j) {
  double sum = 0;
  for (int d = 0; d < q.extents.head_dim; ++d) {
    sum += q.At(0, i, 0, d) * k.At(0, j, 0, d);
  }
  return sum;
}

// Returns the sum of the products of the pairs' lengths. The errors of scores
// are proportional to this sum.
double Scale(const Tensor& q, std::int64_t i, const Tensor& k, std::int64_t j) {
  const auto width = static_cast<int>(q.extents.head_dim);
  double sum = 0;
  for (int p = 0; p < width / 2; ++p) {
    sum += Length(q, i, p, width) * Length(k, j, p, width);
  }
  return sum;
}

// Implementations center each call's own positions, so keys that one call
// cached and queries of the next call disagree. With a given center, a cache
// and a single call agree, and a shift of 0 moves keys from another center,
// without their positions.
TEST(RepositionDriftTest, Disagreement13XPosCentre) {
  const Tensor x = Seeded(Dtype::kFloat32, {1, 64, 1, 64}, 3);
  const Tensor y = Seeded(Dtype::kFloat32, {1, 1, 1, 64}, 4);
  const core::RopeSpec fixed = XPosAround(0), first_call = XPosAround(32),
                       second_call = XPosAround(600);
  const Tensor q =
      ApplyAs(core::TensorRole::kQuery, fixed, core::StartPosition{1200}, y);
  const Tensor moving_q = ApplyAs(core::TensorRole::kQuery, second_call,
                                  core::StartPosition{1200}, y);
  const Tensor k = Apply(fixed, core::StartPosition{0}, x);
  const Tensor stale = Apply(first_call, core::StartPosition{0}, x);
  core::Movement recentre;
  recentre.target = core::ShiftAll{0};
  const Tensor fresh = Move(first_call, second_call, recentre, stale);
  ExpectClose(Apply(second_call, core::StartPosition{0}, x), fresh, 64,
              10 * 0x1p-24);
  double worst = 0;
  for (std::int64_t t = 0; t < 64; ++t) {
    // Elements of q and k, with and without the move, are off by 3u of their
    // pairs' lengths (moved k: 7u): 16u in total, for each of two products.
    const double bound = 2 * 16 * 0x1p-24 * Scale(q, 0, k, t);
    const double score = Score(q, 0, k, t);
    EXPECT_NEAR(Score(moving_q, 0, fresh, t), score, bound);
    worst =
        std::max(worst, std::abs(Score(moving_q, 0, stale, t) - score) / bound);
  }
  EXPECT_GT(worst, 1000) << "centers that differ should have been noticed";
}

TEST(RepositionDriftTest, PartialHeadsMoveTheirSliceOnly) {
  for (const bool trailing : {false, true}) {
    core::RopeSpec spec = Plain();
    spec.rotary_dim = 16;
    if (trailing) spec.slice = core::RotarySlice::kTrailing;
    const Encodings encodings{"partial", spec, spec};
    const Tensor k = Seeded(Dtype::kBfloat16, {1, 5, 2, 80}, 5);
    const Grid p{1, 1, 5, {10, 11, 12, 13, 14}};
    Tensor moved = k;
    Shift(spec, -10, moved);
    EXPECT_EQ(FindMoveError(encodings, {p, p, -10}, k, moved), "");
  }
}

// Self-extension divides positions (arXiv:2401.01325): p -> floor(p / 4), and p
// -> p / 4 for interpolation. Every token moves by -750 to -780 positions, so
// the test would find a move in the wrong direction.
TEST(RepositionDriftTest, DividedPositionsMoveTowardsZero) {
  for (const bool whole : {true, false}) {
    const core::RopeSpec spec = Yarn(4);
    const Tensor x = Seeded(Dtype::kFloat32, {1, 40, 1, 64}, 6);
    std::vector<double> to;
    for (int t = 0; t < 40; ++t) {
      to.push_back(whole ? std::floor((1000 + t) / 4.0) : (1000 + t) / 4.0);
    }
    const core::PositionIds divided{{Dtype::kFloat64, {40}, to.data()}};
    core::Movement movement;
    movement.old_positions = core::StartPosition{1000};
    movement.target = core::NewPositions{divided};
    const Tensor k = Apply(spec, core::StartPosition{1000}, x);
    ExpectClose(Apply(spec, divided, x), Move(spec, spec, movement, k), 64,
                10 * 0x1p-24);
  }
}

// A cache that was written with one scaling, and is read with another.
TEST(RepositionDriftTest, AChangeOfScalingBringsAmplitudeAndFrequencies) {
  const Tensor x = Seeded(Dtype::kFloat32, {1, 40, 1, 64}, 7);
  for (const double from : {1.0, 4.0, 16.0})
    for (const double to : {1.0, 4.0, 16.0}) {
      core::Movement movement;
      movement.old_positions = core::StartPosition{4000};
      movement.target = core::ShiftAll{0};
      const Tensor k = Apply(Yarn(from), core::StartPosition{4000}, x);
      ExpectClose(Apply(Yarn(to), core::StartPosition{4000}, x),
                  Move(Yarn(from), Yarn(to), movement, k), 64, 10 * 0x1p-24);
    }
}

// StreamingLLM: sinks stay, and the window moves next to them.
TEST(RepositionDriftTest, AWindowClosesUpBehindItsSinks) {
  const std::vector<std::int64_t> kept = {0, 1, 2, 3, 996, 997, 998, 999};
  const core::PositionIds ids{{Dtype::kInt64, {8}, kept.data()}};
  const Tensor x = Seeded(Dtype::kFloat32, {1, 8, 1, 64}, 8);
  core::Movement movement;
  movement.old_positions = ids;
  movement.target = core::NewPositions{core::StartPosition{0}};
  ExpectClose(Apply(Plain(), core::StartPosition{0}, x),
              Move(Plain(), Plain(), movement, Apply(Plain(), ids, x)), 64,
              10 * 0x1p-24);
}

}  // namespace
}  // namespace posenc::test
