// Analyses of encodings against the formulas of core/rope/analyze.h in
// __float128.

#include "core/rope/analyze.h"

#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "tests/reference/rope_reference.h"

namespace posenc::core {
namespace {

using reference::Quad;

constexpr double kUnit = 0x1p-53;

RopeSpec Plain(std::int32_t rotary_dim, double theta = 10000) {
  RopeSpec spec;
  spec.pairing = Pairing::kHalfSplit;
  spec.rotary_dim = rotary_dim;
  spec.rope_theta = theta;
  return spec;
}

ResolvedRope Resolve(const RopeSpec& spec) {
  const absl::StatusOr<ResolvedRope> rope =
      ResolveSpec(spec, 0, 8192, MissingLength::kError);
  EXPECT_TRUE(rope.ok()) << rope.status();
  return *rope;
}

RopeAnalysis Analyze(const ResolvedRope& rope, std::int64_t max_distance,
                     std::int64_t step, std::int64_t trained_length = 0) {
  absl::StatusOr<RopeAnalyzer> analyzer =
      RopeAnalyzer::Create(rope, max_distance, step, trained_length);
  EXPECT_TRUE(analyzer.ok()) << analyzer.status();
  // Evaluates the last part first, because no part depends on another part.
  const std::int64_t half = analyzer->distances() / 2;
  analyzer->Evaluate(half, analyzer->distances() - half);
  analyzer->Evaluate(0, half);
  return analyzer->analysis();
}

// Checks the curves at each distance.
//
// Each cosine or sine is off by 2 ulp (2u). Rounding the k-th partial sum,
// which is at most k, adds k u. So a sum of n terms is off by (2n + (n^2 + n) /
// 2) u. The similarity is a sum divided by P, so it is off by (2 + (P + 1) / 2)
// u, and by u for the division. |S_n| is off by sqrt(2) times a sum's error,
// and by 2n u for its squares and root. The k-th sum of lengths, which is at
// most k (k + 1) / 2, is rounded, and so is the division. The expected numbers
// are rounded, too; they are at most 1 and (P + 1) / 2.
void ExpectCurves(const ResolvedRope& rope, std::int64_t max_distance,
                  std::int64_t step) {
  const RopeAnalysis analysis = Analyze(rope, max_distance, step);
  const std::size_t pairs = rope.inv_freq.size();
  const auto p = static_cast<double>(pairs);
  const double of_similarity = (2 + (p + 1) / 2 + 2) * kUnit;
  // Means over n = 1..P of n, n^2, and of the sums k (k + 1) / 2.
  const double n1 = (p + 1) / 2, n2 = (p + 1) * (2 * p + 1) / 6;
  const double of_decay = (std::sqrt(2.0) * (2 * n1 + (n2 + n1) / 2) + 2 * n1 +
                           (p + 1) * (p + 2) / 6 + 2 * n1) *
                          kUnit;
  ASSERT_EQ(analysis.decay.size(), max_distance / step + 1);
  ASSERT_EQ(analysis.similarity.size(), max_distance / step + 1);
  for (std::size_t j = 0; j < analysis.decay.size(); ++j) {
    const auto distance = static_cast<double>(j * step);
    Quad re = 0, im = 0;
    long double lengths = 0;
    for (const double w : rope.inv_freq) {
      re += reference::Cos(distance, w);
      im += reference::Sin(distance, w);
      lengths += std::sqrt(static_cast<long double>(re * re + im * im));
    }
    EXPECT_NEAR(analysis.similarity[j], static_cast<double>(re / p),
                of_similarity)
        << distance;
    EXPECT_NEAR(analysis.decay[j], static_cast<double>(lengths / p), of_decay)
        << distance;
  }
}

TEST(AnalyzeRopeTest, CurvesFollowTheFormulas) {
  ExpectCurves(Resolve(Plain(128)), 300, 1);
  ExpectCurves(Resolve(Plain(2)), 40, 3);
  RopeSpec yarn = Plain(64, 500000);
  YarnScaling scaling;
  scaling.factor = 4;
  scaling.original_max_position_embeddings = 4096;
  yarn.scaling = scaling;
  ExpectCurves(Resolve(yarn), 16384, 1000);
}

TEST(AnalyzeRopeTest, AnglesAreExactAtTheFarthestDistance) {
  const std::int64_t end = std::int64_t{1} << 31;
  ExpectCurves(Resolve(Plain(128)), end, end / 16 - 1);
  ExpectCurves(Resolve(Plain(128, 1e7)), end, end);
}

// Amplitude, sign, decay and precision do not affect the curves.
TEST(AnalyzeRopeTest, OnlyFrequenciesMatter) {
  const RopeAnalysis plain = Analyze(Resolve(Plain(64)), 5000, 100);
  RopeSpec spec = Plain(64);
  spec.attention_factor = 1.5;
  spec.reverse = true;
  spec.angle_precision = AnglePrecision::kFloat32;
  spec.xpos.emplace();
  const RopeAnalysis other = Analyze(Resolve(spec), 5000, 100);
  EXPECT_EQ(other.decay, plain.decay);
  EXPECT_EQ(other.similarity, plain.similarity);
  EXPECT_EQ(other.wavelengths, plain.wavelengths);
}

TEST(AnalyzeRopeTest, CurvesStartAtTheirLargest) {
  const RopeAnalysis analysis = Analyze(Resolve(Plain(128)), 0, 0);
  ASSERT_EQ(analysis.decay.size(), 1);
  // The mean of 1..64, and of 64 ones.
  EXPECT_EQ(analysis.decay[0], 32.5);
  EXPECT_EQ(analysis.similarity[0], 1);
}

TEST(AnalyzeRopeTest, WavelengthsAreTurnsOfEachPair) {
  RopeSpec spec = Plain(64);
  ProportionalScaling scaling;
  scaling.rotating_pairs = 20;
  spec.scaling = scaling;
  const ResolvedRope rope = Resolve(spec);
  const std::vector<double> wavelengths = Analyze(rope, 0, 1).wavelengths;
  ASSERT_EQ(wavelengths.size(), 32);
  for (int i = 0; i < 32; ++i) {
    if (i >= 20) {
      EXPECT_EQ(wavelengths[i], std::numeric_limits<double>::infinity());
      continue;
    }
    // Correctly rounded, except for one double rounding.
    const Quad pi = Quad(0x1.921fb54442d18p+1) + Quad(0x1.1a62633145c07p-53);
    const Quad exact = 2 * pi / Quad(rope.inv_freq[i]);
    EXPECT_LE(reference::UlpError(wavelengths[i], exact), 0.501) << i;
  }
}

TEST(AnalyzeRopeTest, CountsPairsThatTurnWithinTheTrainedLength) {
  ResolvedRope rope = Resolve(Plain(128));
  const auto count = [&](std::int64_t trained_length) {
    return Analyze(rope, 0, 1, trained_length).pairs_within_trained_length;
  };
  // 2 pi 10000^(i / 64) <= 4096 for i <= 64 log10(4096 / (2 pi)) / 4 = 45.03.
  EXPECT_EQ(count(4096), 46);
  EXPECT_EQ(count(6), 0);
  EXPECT_EQ(count(7), 1);
  EXPECT_EQ(count(62832), 64);
  // The longest wavelength is 2 pi 10000^(63 / 64) = 54410.2.
  EXPECT_EQ(count(54411), 64);
  EXPECT_EQ(count(54410), 63);
  rope.original_max_position_embeddings = 0;
  EXPECT_EQ(count(0), 0);
  rope.original_max_position_embeddings = 4096;
  EXPECT_EQ(count(0), 46);
  EXPECT_EQ(count(7), 1);
}

TEST(AnalyzeRopeTest, ServesTheLargestNumberOfDistances) {
  const RopeAnalysis analysis =
      Analyze(Resolve(Plain(2)), 2 * kMaxDistances - 1, 2);
  EXPECT_EQ(analysis.decay.size(), kMaxDistances);
}

}  // namespace
}  // namespace posenc::core
