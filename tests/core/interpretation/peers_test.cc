// Compares the interpretation of configurations, tables and rotations with
// recorded return values of transformers (tests/data/peers/README.md).

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/interpretation/source.h"
#include "core/rope/table.h"
#include "core/rotation/apply.h"
#include "nlohmann/json.hpp"
#include "tests/fixtures/core/peer_data.h"
#include "tests/fixtures/core/peer_rotation.h"

namespace posenc::core::interpretation {
namespace {

using nlohmann::json;
using test::Floats;
using test::LoadPeer;
using test::PairingOf;
using test::PeerCases;
using test::PositionsOf;

// Returns the distance in units in the last place of float32. Both numbers must
// be finite and >= 0.
std::int64_t UlpsApart(float a, float b) {
  return std::abs(static_cast<std::int64_t>(std::bit_cast<std::int32_t>(a)) -
                  std::bit_cast<std::int32_t>(b));
}

class PeerTest : public testing::TestWithParam<std::string> {
 protected:
  PeerTest() : peer_(LoadPeer("rope", GetParam())) {
    for (const char* key :
         {"layer_type", "nope_layers", "config_v5", "q_scale", "rotation_sign",
          "pair_axis", "apply", "softmax_scale_multiplier"}) {
      if (!peer_.contains(key)) peer_[key] = nullptr;
    }
  }

  std::size_t pairs() const { return peer_["rotary_dim"].get<int>() / 2; }
  double amplitude() const { return peer_["attention_scaling"].get<double>(); }

  // The frequencies that the model's authors intended.
  std::vector<float> Expected() const {
    std::vector<float> expected = Floats(peer_["inv_freq"]);
    const std::size_t n = expected.size();
    // peer_defect: the library does not read attn_config.rope_theta.
    if (GetParam() == "dbrx") {
      for (std::size_t i = 0; i < n; ++i) {
        expected[i] = static_cast<float>(
            std::pow(500000.0L, -static_cast<long double>(i) / n));
      }
    }
    // peer_defect: the library keeps the short factors.
    if (GetParam() == "phimoe-long") {
      const json& factors = peer_["config"]["rope_scaling"]["long_factor"];
      for (std::size_t i = 0; i < n; ++i) {
        expected[i] = static_cast<float>(
            std::pow(10000.0L, -static_cast<long double>(i) / n) /
            factors[i].get<double>());
      }
    }
    return expected;
  }

  RopeSource Source(const json& config) const {
    RopeSource source;
    source.source = ConfigJson{config.dump()};
    if (peer_["layer_type"].is_string()) {
      source.layer_type = peer_["layer_type"].get<std::string>();
    } else if (peer_.contains("nope_layers") &&
               !peer_["nope_layers"].is_null()) {
      std::int32_t layer = 0;
      while (IsNopeLayer(layer)) ++layer;
      source.layer_index = layer;
    }
    source.sequence_length = peer_["seq_len"].get<std::int64_t>();
    return source;
  }

  bool IsNopeLayer(int layer) const {
    const json& layers = peer_["nope_layers"];
    return std::find(layers.begin(), layers.end(), layer) != layers.end();
  }

  void CheckReading(const json& config) const {
    const auto rope = ResolveSource(Source(config), 0, MissingLength::kError);
    ASSERT_TRUE(rope.ok()) << rope.status();
    const RopeSpec& spec = rope->spec;
    EXPECT_EQ(rope->head_dim, peer_["head_dim"].get<int>());
    ASSERT_EQ(spec.rotary_dim, peer_["rotary_dim"].get<int>());
    const std::int64_t offset = spec.slice == RotarySlice::kTrailing
                                    ? rope->head_dim - spec.rotary_dim
                                    : 0;
    EXPECT_EQ(offset, peer_["rotary_offset"].get<int>());
    const Pairing in = PairingOf(peer_["pairing_in"]);
    const Pairing out = PairingOf(peer_["pairing_out"]);
    EXPECT_EQ(spec.pairing, in);
    EXPECT_EQ(spec.output_pairing == Pairing::kUnspecified
                  ? spec.pairing
                  : spec.output_pairing,
              out);
    EXPECT_EQ(spec.reverse, peer_.value("rotation_sign", json()) == -1);
    EXPECT_NEAR(rope->attention_factor, amplitude(), 1e-7 * amplitude());
    if (peer_.contains("softmax_scale_multiplier") &&
        peer_["softmax_scale_multiplier"].is_number()) {
      const double multiplier = peer_["softmax_scale_multiplier"].get<double>();
      EXPECT_NEAR(rope->softmax_scale_multiplier, multiplier,
                  1e-12 * multiplier);
    }
    const std::vector<float> expected = Expected();
    ASSERT_EQ(rope->inv_freq.size(), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      // The peers are within 5 ulp of exact arithmetic.
      EXPECT_LE(UlpsApart(static_cast<float>(rope->inv_freq[i]), expected[i]),
                5)
          << "pair " << i << ": " << rope->inv_freq[i] << " against "
          << expected[i];
    }
    if (peer_["axes"].get<int>() > 1) {
      EXPECT_EQ(rope->axes(), peer_["axes"].get<int>());
      if (peer_.contains("pair_axis") && peer_["pair_axis"].is_array()) {
        EXPECT_EQ(rope->axis_of_pair,
                  peer_["pair_axis"].get<std::vector<std::int32_t>>());
      }
    }
    CheckQueryScale(*rope);
  }

  void CheckQueryScale(const ResolvedRope& rope) const {
    if (!peer_.contains("q_scale") || peer_["q_scale"].is_null()) return;
    ASSERT_TRUE(rope.query_scale.has_value());
    const QueryScale& scale = *rope.query_scale;
    const json& recorded = peer_["q_scale"];
    for (std::size_t i = 0; i < recorded["positions"].size(); ++i) {
      const double position = recorded["positions"][i].get<double>();
      const double steps = std::floor(
          (position + static_cast<double>(scale.offset)) / scale.floor_scale);
      const double expected = recorded["scale"][i].get<double>();
      // Float32 logarithm, product and sum: 3 roundings of 2^-24.
      EXPECT_NEAR(1 + scale.beta * std::log(1 + steps), expected,
                  3 * 0x1p-24 * expected);
    }
  }

  // Returns a spec with the recorded frequencies and axes, and float32 products
  // as in the frameworks. The roformer case has no float32 products: its table
  // has float64 angles.
  RopeSpec RecordedSpec() const {
    RopeSpec spec;
    spec.rotary_dim = peer_["rotary_dim"].get<int>();
    spec.slice = peer_["rotary_offset"].get<int>() == 0
                     ? RotarySlice::kLeading
                     : RotarySlice::kTrailing;
    spec.pairing = PairingOf(peer_["pairing_in"]);
    spec.output_pairing = PairingOf(peer_["pairing_out"]);
    spec.attention_factor = amplitude();
    spec.reverse = peer_.value("rotation_sign", json()) == -1;
    if (GetParam() == "roformer-chinese-base") return spec;
    spec.angle_precision = AnglePrecision::kFloat32;
    const std::vector<float> inv_freq = Floats(peer_["inv_freq"]);
    const int axes = peer_["axes"].get<int>();
    ExplicitFrequencies frequencies;
    frequencies.axes = axes;
    for (int axis = 0; axis < axes; ++axis) {
      for (std::size_t i = 0; i < inv_freq.size(); ++i) {
        const bool turns = axes == 1 || peer_["pair_axis"][i] == axis;
        frequencies.values.push_back(turns ? inv_freq[i] : 0);
      }
    }
    spec.scaling = frequencies;
    return spec;
  }

  // In this record the two channels of a pair have different axes, so it is no
  // rotation.
  bool IsRotation() const { return GetParam() != "hunyuan-vl-xdrope"; }

  json peer_;
};

TEST_P(PeerTest, ReadsPublishedConfig) { CheckReading(peer_["config"]); }

TEST_P(PeerTest, ReadsNewerSpelling) {
  // The library's own normalisation loses DBRX's theta (peer_defect).
  if (!peer_["config_v5"].is_object() || GetParam() == "dbrx") return;
  json config = peer_["config_v5"];
  if (!config.contains("model_type")) {
    config["model_type"] = peer_["config"]["model_type"];
  }
  CheckReading(config);
}

TEST_P(PeerTest, MarksLayersWithoutRope) {
  if (!peer_.contains("nope_layers") || peer_["nope_layers"].is_null()) return;
  RopeSource source = Source(peer_["config"]);
  for (int layer = 0; layer < 12; ++layer) {
    source.layer_index = layer;
    const auto rope = ResolveSource(source, 0, MissingLength::kError);
    ASSERT_TRUE(rope.ok()) << rope.status();
    EXPECT_EQ(rope->spec.nope, IsNopeLayer(layer)) << "layer " << layer;
  }
}

TEST_P(PeerTest, TableAgreesWithFloat32Angles) {
  if (!IsRotation()) return;
  const auto rope = ResolveSpec(RecordedSpec(), peer_["head_dim"].get<int>(),
                                std::nullopt, MissingLength::kError);
  ASSERT_TRUE(rope.ok()) << rope.status();
  const int axes = peer_["axes"].get<int>();
  const std::vector<double> values = PositionsOf(peer_["table"]["positions"]);
  const auto [cos, sin] = test::BuildHalfTable(*rope, values, axes);
  const auto rows = static_cast<std::int64_t>(values.size()) / axes;
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::vector<float> peer_cos = Floats(peer_["table"]["cos"][row]);
    const std::vector<float> peer_sin = Floats(peer_["table"]["sin"][row]);
    for (std::size_t i = 0; i < pairs(); ++i) {
      const std::size_t at = row * pairs() + i;
      EXPECT_NEAR(cos[at], peer_cos[i], 1.5e-7 * amplitude())
          << "row " << row << " pair " << i;
      EXPECT_NEAR(sin[at], peer_sin[i], 1.5e-7 * amplitude())
          << "row " << row << " pair " << i;
    }
  }
}

TEST_P(PeerTest, RotationAgrees) {
  if (!IsRotation()) return;
  const json& apply = peer_["apply"];
  if (!apply.is_object()) return;
  for (const char* name : {"q", "k"}) {
    const std::vector<float> out = test::Rotated(
        LookupOf(RecordedSpec()), Layout::kBhsd,
        apply[name]["shape"].get<Shape>(), test::TensorData(apply[name]),
        PositionsOf(apply["positions"]), peer_["axes"].get<int>());
    const std::vector<float> expected =
        test::TensorData(apply[std::string(name) + "_out"]);
    ASSERT_EQ(out.size(), expected.size());
    for (std::size_t i = 0; i < out.size(); ++i) {
      EXPECT_NEAR(out[i], expected[i], 5e-7 * amplitude())
          << name << " element " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Recorded, PeerTest,
                         testing::ValuesIn(PeerCases("rope", "rope")),
                         [](const testing::TestParamInfo<std::string>& info) {
                           return test::TestName(info.param);
                         });

TEST(PeerDataTest, HasCasesOfTransformersOnly) {
  EXPECT_GE(PeerCases("rope", "rope").size(), 60u);
  for (const std::string& name : PeerCases("rope", "rope")) {
    EXPECT_EQ(LoadPeer("rope", name)["profile"], "hf") << name;
  }
}

// Recorded numbers that are wrong (peer_defect), and the right numbers.

ResolvedRope ReadPeer(const std::string& name, std::int64_t length) {
  RopeSource source;
  source.source = ConfigJson{LoadPeer("rope", name)["config"].dump()};
  source.sequence_length = length;
  const auto rope = ResolveSource(source, 0, MissingLength::kError);
  EXPECT_TRUE(rope.ok()) << rope.status();
  return rope.ok() ? *rope : ResolvedRope();
}

TEST(PeerDefectTest, EveryDefectHasATestHere) {
  std::vector<std::string> defects;
  for (const std::string& name : PeerCases("rope", "rope")) {
    if (LoadPeer("rope", name).contains("peer_defect")) {
      defects.push_back(name);
    }
  }
  EXPECT_THAT(defects,
              testing::ElementsAre("dbrx", "hunyuan-vl-xdrope", "phimoe-long"));
}

TEST(PeerDefectTest, DbrxTurnsByTheThetaOfItsAttentionConfig) {
  const ResolvedRope rope = ReadPeer("dbrx", 4096);
  EXPECT_EQ(rope.spec.rope_theta, 500000);
  // The same model in the newer spelling, which the peer reads.
  const std::vector<float> right =
      Floats(LoadPeer("rope", "dbrx-v5")["inv_freq"]);
  ASSERT_EQ(rope.inv_freq.size(), right.size());
  for (std::size_t i = 0; i < right.size(); ++i) {
    EXPECT_LE(UlpsApart(static_cast<float>(rope.inv_freq[i]), right[i]), 5);
  }
}

TEST(PeerDefectTest, HunyuanVlTurnsBothChannelsOfAPairByOneAxis) {
  const ResolvedRope rope = ReadPeer("hunyuan-vl-xdrope", 4096);
  ASSERT_EQ(rope.axis_of_pair.size(), 64u);
  for (int pair = 0; pair < 64; ++pair) {
    EXPECT_EQ(rope.axis_of_pair[pair], pair / 16) << "pair " << pair;
  }
}

TEST(PeerDefectTest, PhimoeTurnsByLongFactorsPastItsOriginalLength) {
  const json factors =
      LoadPeer("rope", "phimoe-long")["config"]["rope_scaling"];
  for (const auto& [length, key] :
       {std::pair(4096, "short_factor"), std::pair(4097, "long_factor")}) {
    const ResolvedRope rope = ReadPeer("phimoe-long", length);
    ASSERT_EQ(rope.inv_freq.size(), 64u);
    for (int i = 0; i < 64; ++i) {
      const long double expected =
          std::pow(10000.0L, -i / 64.0L) / factors[key][i].get<double>();
      // The expected number is rounded once from long double.
      EXPECT_NEAR(rope.inv_freq[i], static_cast<double>(expected),
                  0x1p-52 * static_cast<double>(expected))
          << key << " " << i;
    }
  }
}

}  // namespace
}  // namespace posenc::core::interpretation
