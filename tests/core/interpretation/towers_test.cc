// Compares the reading of vision towers, their positions and rotations with
// results of transformers' own modules (tests/parity/towers.py). With FLOAT32
// angles all bits are equal: frequencies, tables and rotated heads, because the
// recorded module ran with correctly rounded cosines and sines.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "core/interpretation/config.h"
#include "core/interpretation/source.h"
#include "core/positions/position_schemes.h"
#include "core/rope/table.h"
#include "core/rotation/apply.h"
#include "nlohmann/json.hpp"
#include "tests/fixtures/core/peer_data.h"
#include "tests/fixtures/core/peer_rotation.h"
#include "tests/fixtures/gzip_json.h"
#include "tests/fixtures/hex.h"

namespace posenc::core::interpretation {
namespace {

using nlohmann::json;
using testing::ElementsAre;

const json& Record() {
  static const json* const record = new json(test::LoadGzipJson(
      std::string(POSENC_TEST_DATA) + "/parity/towers.json.gz"));
  return *record;
}

// Returns float32 numbers from their bits in hexadecimal.
std::vector<float> FromHex(const json& text) {
  return test::FloatsFromHex(text.get_ref<const std::string&>());
}

ModelPart PartOf(const json& entry) {
  return entry.contains("part") ? ModelPart::kVision : ModelPart::kUnspecified;
}

RopeSource SourceOf(const json& entry) {
  RopeSource source;
  source.source = ConfigJson{entry["config"].dump()};
  source.part = PartOf(entry);
  return source;
}

// The record's formula for the elements of [tokens, 1, width] heads.
std::vector<float> Heads(std::int64_t tokens, std::int64_t width) {
  std::vector<float> x;
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (std::int64_t c = 0; c < width; ++c) {
      const auto seed = static_cast<std::uint32_t>(t * 73 + c * 17 + 5);
      const std::uint32_t hashed = (seed * 2654435761U) >> 8;
      x.push_back(static_cast<float>(hashed / 0x1p23 - 1));
    }
  }
  return x;
}

// A model of the record's list `kind`.
class RecordedTest : public testing::TestWithParam<std::size_t> {
 protected:
  explicit RecordedTest(const char* kind)
      : recorded_(Record()[kind][GetParam()]) {}

  const json& recorded() const { return recorded_; }
  // Returns the recorded positions, in the shape [axes, tokens].
  std::vector<double> Positions() const {
    return test::PositionsOf(recorded()["positions"]);
  }
  int axes() const { return static_cast<int>(recorded()["positions"].size()); }
  std::int64_t tokens() const {
    return static_cast<std::int64_t>(recorded()["positions"][0].size());
  }

  // Compares all bits.
  void ExpectTable(const ResolvedRope& rope) const {
    const std::int64_t pairs = rope.pairs();
    const auto [cos, sin] = test::BuildHalfTable(rope, Positions(), axes());
    const std::vector<float> peer_cos = FromHex(recorded()["cos"]);
    const std::vector<float> peer_sin = FromHex(recorded()["sin"]);
    ASSERT_EQ(peer_cos.size(), recorded()["rows"].size() * pairs);
    std::size_t at = 0;
    for (const json& row : recorded()["rows"]) {
      for (std::int64_t i = 0; i < pairs; ++i, ++at) {
        const std::int64_t ours = row.get<std::int64_t>() * pairs + i;
        EXPECT_EQ(cos[ours], peer_cos[at]) << row << " " << i;
        EXPECT_EQ(sin[ours], peer_sin[at]) << row << " " << i;
      }
    }
  }

  void ExpectPositions(const json& config, std::int32_t text_tokens) const {
    const auto tower = ResolveTowerGrid(SourceOf(config));
    ASSERT_TRUE(tower.ok()) << tower.status();
    const json& grid = recorded()["grid"];
    const PositionScheme scheme =
        VisionScheme{*tower, {{grid[0], grid[1], grid[2]}}, text_tokens};
    const auto extents = ValidateScheme(scheme);
    ASSERT_TRUE(extents.ok()) << extents.status();
    ASSERT_THAT(extents->shape, ElementsAre(axes(), tokens()));
    // The elements are int32 or float32.
    std::vector<std::int32_t> storage(axes() * tokens());
    FillPositions(scheme, 0, static_cast<std::int64_t>(storage.size()),
                  reinterpret_cast<char*>(storage.data()));
    const ConstTensorView ids = {extents->dtype, extents->shape,
                                 storage.data()};
    const std::vector<double> expected = Positions();
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(ElementAsDouble(ids, static_cast<std::int64_t>(i)), expected[i])
          << i;
    }
  }

 private:
  const json& recorded_;
};

// One configuration of a tower; all of its spellings mean the same.
class TowerTest : public RecordedTest {
 protected:
  TowerTest() : RecordedTest("towers") {}

  ResolvedRope Resolve(const json& entry) const {
    auto rope = ResolveSource(SourceOf(entry), 0, MissingLength::kError);
    EXPECT_TRUE(rope.ok()) << rope.status() << " " << entry.dump();
    return rope.ok() ? *rope : ResolvedRope{};
  }

  ResolvedRope WithFloat32Angles() const {
    RopeSpec spec = Resolve(recorded()["configs"][0]).spec;
    spec.angle_precision = AnglePrecision::kFloat32;
    return *ResolveSpec(spec, recorded()["head_dim"].get<int>(), std::nullopt,
                        MissingLength::kError);
  }
};

TEST_P(TowerTest, EverySpellingHasTheModulesFrequencies) {
  const std::vector<float> expected = FromHex(recorded()["inv_freq"]);
  const bool halves = recorded()["pairing"] == "half_per_axis";
  for (const json& entry : recorded()["configs"]) {
    SCOPED_TRACE(entry.dump());
    const ResolvedRope rope = Resolve(entry);
    ASSERT_EQ(rope.inv_freq.size(), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      // Towers of one axis are read like language models, with exact
      // frequencies. The library's frequencies are within 5 ulp of these.
      const auto unit =
          std::bit_cast<std::int32_t>(static_cast<float>(rope.inv_freq[i]));
      const std::int64_t apart = std::abs(
          std::int64_t{unit} - std::bit_cast<std::int32_t>(expected[i]));
      EXPECT_LE(apart, rope.axes() == 1 ? 5 : 0) << "pair " << i;
    }
    const auto axis_of_pair =
        recorded()["axis_of_pair"].get<std::vector<std::int32_t>>();
    if (rope.axes() > 1) {
      EXPECT_EQ(rope.axis_of_pair, axis_of_pair);
    }
    EXPECT_EQ(rope.head_dim, recorded()["head_dim"].get<int>());
    EXPECT_EQ(rope.attention_factor, 1);
    EXPECT_EQ(rope.spec.pairing, recorded()["pairing"] == "interleaved"
                                     ? Pairing::kInterleaved
                                     : Pairing::kHalfSplit);
    EXPECT_EQ(rope.spec.axes && rope.spec.axes->halves_per_axis, halves);
  }
}

TEST_P(TowerTest, PositionsOfAGridAreTheModels) {
  if (!recorded().contains("positions") || axes() == 1) return;
  ExpectPositions(recorded()["configs"][0], 0);
}

TEST_P(TowerTest, CosinesAndSinesAreTheModulesBitByBit) {
  if (!recorded().contains("cos") || axes() == 1) return;
  ExpectTable(WithFloat32Angles());
}

TEST_P(TowerTest, RotatedHeadsAreTheModulesBitByBit) {
  if (!recorded().contains("rotated") || axes() == 1) return;
  const std::int64_t width = recorded()["head_dim"].get<std::int64_t>();
  const std::vector<float> out = test::Rotated(
      LookupOf(WithFloat32Angles().spec), Layout::kBshd,
      {1, tokens(), 1, width}, Heads(tokens(), width), Positions(), axes());
  const std::vector<float> expected = FromHex(recorded()["rotated"]);
  std::size_t at = 0;
  for (const json& row : recorded()["rows"]) {
    for (std::int64_t c = 0; c < width; ++c, ++at) {
      EXPECT_EQ(out[row.get<std::int64_t>() * width + c], expected[at])
          << row << " " << c;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Recorded, TowerTest,
                         testing::Range(std::size_t{0},
                                        Record()["towers"].size()),
                         [](const testing::TestParamInfo<std::size_t>& info) {
                           const json& tower = Record()["towers"][info.param];
                           return test::TestName(
                               tower["tower"].get<std::string>() + "_" +
                               tower["configuration"].get<std::string>());
                         });

// Diffusion transformers of diffusers: exact angles for models that compute in
// float64, FLOAT32 angles for all others.
class DiffusionTest : public RecordedTest {
 protected:
  DiffusionTest() : RecordedTest("diffusion") {}
};

TEST_P(DiffusionTest, TablesAreTheModulesBitByBit) {
  const auto read =
      ResolveSource(SourceOf(recorded()), 0, MissingLength::kError);
  ASSERT_TRUE(read.ok()) << read.status();
  RopeSpec spec = read->spec;
  if (std::holds_alternative<ExplicitFrequencies>(spec.scaling)) {
    spec.angle_precision = AnglePrecision::kFloat32;
  }
  const auto rope = ResolveSpec(spec, 0, std::nullopt, MissingLength::kError);
  ASSERT_TRUE(rope.ok()) << rope.status();
  ExpectTable(*rope);
}

TEST_P(DiffusionTest, PositionsAreThoseOfThePipeline) {
  ExpectPositions(recorded(), recorded()["text_tokens"].get<std::int32_t>());
}

INSTANTIATE_TEST_SUITE_P(
    Recorded, DiffusionTest,
    testing::Range(std::size_t{0}, Record()["diffusion"].size()),
    [](const testing::TestParamInfo<std::size_t>& info) {
      return Record()["diffusion"][info.param]["class"].get<std::string>();
    });

TEST(TowerRecordTest, HasAtLeastThirtyTowers) {
  EXPECT_GE(Record()["towers"].size(), 2 * 30);
}

TEST(VisionPositionsTest, GridsFollowOneAnother) {
  const PositionScheme scheme = VisionScheme{
      {.axes = {GridAxis::kHeight, GridAxis::kWidth}, .first = 1, .leading = 1},
      {{1, 1, 2}, {1, 2, 1}}};
  const auto extents = ValidateScheme(scheme);
  ASSERT_TRUE(extents.ok()) << extents.status();
  ASSERT_THAT(extents->shape, ElementsAre(2, 6));
  std::vector<std::int32_t> ids(12);
  FillPositions(scheme, 0, 12, reinterpret_cast<char*>(ids.data()));
  EXPECT_THAT(ids, ElementsAre(0, 1, 1, 0, 1, 2, 0, 1, 2, 0, 1, 1));
}

}  // namespace
}  // namespace posenc::core::interpretation
