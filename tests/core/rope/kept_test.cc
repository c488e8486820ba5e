// kept(r): the share of a score that another encoding's frequencies keep.

#include "core/rope/kept.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "core/interpretation/source.h"
#include "nlohmann/json.hpp"

namespace posenc::core {
namespace {

using nlohmann::json;

ResolvedRope Preset(const std::string& name, interpretation::Profile profile) {
  interpretation::RopeSource source;
  source.source = interpretation::PresetName{name};
  source.profile = profile;
  auto rope =
      interpretation::ResolveSource(source, 0, MissingLength::kAssumeOriginal);
  EXPECT_TRUE(rope.ok()) << rope.status();
  return *std::move(rope);
}

std::vector<double> Geometric(double base, int pairs, double factor = 1) {
  std::vector<double> w;
  for (int i = 0; i < pairs; ++i) {
    w.push_back(std::pow(base, -static_cast<double>(i) / pairs) / factor);
  }
  return w;
}

TEST(KeptTest, IsWithin1e15OfFiftyDigitsAtEveryDistance) {
  std::ifstream file(POSENC_TEST_DATA "/kept.json");
  const json cases = json::parse(file);
  ASSERT_EQ(cases.size(), 6);
  int compared = 0;
  for (const json& one : cases) {
    Kept kept(one["reference"].get<std::vector<double>>(),
              one["other"].get<std::vector<double>>());
    for (const json& entry : one["kept"]) {
      const long double exact =
          std::strtold(entry[1].get<std::string>().c_str(), nullptr);
      const auto r = entry[0].get<std::int64_t>();
      EXPECT_LE(std::abs(static_cast<long double>(kept.At(r)) - exact), 1e-15L)
          << one["name"] << " at " << r;
      ++compared;
    }
  }
  EXPECT_EQ(compared, 6 * 26);
}

TEST(KeptTest, EndsWhenItIsStopped) {
  int asked = 0;
  const StopAsked stop = [&asked] {
    return ++asked < 10 ? absl::OkStatus() : absl::CancelledError("gone");
  };
  Kept kept(Preset("gpt-oss-20b", interpretation::Profile::kHf),
            Preset("gpt-oss-20b", interpretation::Profile::kLlamaCpp), stop);
  EXPECT_EQ(kept.FirstDistance(131072), -1);
  EXPECT_EQ(kept.status().code(), absl::StatusCode::kCancelled);
  kept.Least(131072);
  EXPECT_EQ(asked, 10);
}

TEST(KeptTest, EqualFrequenciesKeepAll) {
  Kept kept(Geometric(1e4, 8), Geometric(1e4, 8));
  EXPECT_TRUE(kept.equal());
  EXPECT_EQ(kept.At(1 << 30), 1);
  EXPECT_EQ(kept.FirstDistance(1 << 20), -1);
  EXPECT_EQ(kept.Least(1 << 20), 1);
}

TEST(KeptTest, FirstDistanceIsTheLeastThatIsBelowTheLimit) {
  Kept kept(std::vector<double>{1}, std::vector<double>{0.999});
  // cos(0.001 r) is below 0.9 if r exceeds acos(0.9) / 0.001 = 451.03.
  EXPECT_EQ(kept.FirstDistance(8192), 452);
  EXPECT_EQ(kept.FirstDistance(452), 452);
  EXPECT_EQ(kept.FirstDistance(451), -1);
}

TEST(KeptTest, TheLastDistanceIsTriedAndTheFirst4096AreAll) {
  const std::vector<std::int64_t> short_ones = TriedDistances(3);
  EXPECT_EQ(short_ones, (std::vector<std::int64_t>{1, 2, 3}));
  const std::vector<std::int64_t> distances = TriedDistances(131072);
  ASSERT_GT(distances.size(), 8000);
  EXPECT_EQ(distances[4095], 4096);
  EXPECT_EQ(distances.back(), 131072);
  for (std::size_t i = 1; i < distances.size(); ++i) {
    EXPECT_LT(distances[i - 1], distances[i]);
  }
  EXPECT_TRUE(TriedDistances(0).empty());
}

// gpt-oss: an angle of the rounded ramp differs by 0.01 rad from position 46
// on, but 90 % of a score is kept up to distance 5443.
TEST(KeptTest, FirstDistanceIsFarBeyondTheFirstAngle) {
  Kept kept(Preset("gpt-oss-20b", interpretation::Profile::kHf),
            Preset("gpt-oss-20b", interpretation::Profile::kLlamaCpp));
  const std::int64_t first = kept.FirstDistance(131072);
  EXPECT_GE(first, 5443 - 3);  // tried distances differ by 0.08 %
  EXPECT_LE(first, 5443 + 3);
  EXPECT_GT(kept.At(46), 0.9999);
}

TEST(KeptTest, APairThatOneSideDoesNotTurnCountsAsFrequencyZero) {
  Kept kept(std::vector<double>{1, 0.5}, std::vector<double>{1});
  EXPECT_NEAR(kept.At(2), (1 + std::cos(1.0)) / 2, 1e-15);
  Kept none(std::vector<double>{}, std::vector<double>{});
  EXPECT_EQ(none.At(5), 1);
}

}  // namespace
}  // namespace posenc::core
