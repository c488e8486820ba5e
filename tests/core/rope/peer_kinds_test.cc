// Compares vision towers' axes, rotations in 16 bits and V-JEPA 2's tiled table
// with recorded results of transformers (data/peers/README.md).

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/interpretation/source.h"
#include "core/rope/table.h"
#include "core/rotation/apply.h"
#include "nlohmann/json.hpp"
#include "tests/fixtures/core/peer_data.h"
#include "tests/fixtures/core/peer_rotation.h"
#include "tests/reference/float_formats.h"

namespace posenc::core {
namespace {

using nlohmann::json;
using test::Floats;
using test::LoadPeer;
using test::PairingOf;
using test::PeerCases;
using test::PositionsOf;
using test::TensorData;

std::string NameOf(const testing::TestParamInfo<std::string>& info) {
  return test::TestName(info.param);
}

// Compares rows of cos and sin at [axes, rows] positions with recorded ones.
// Recorded frequencies give the peer's own angles; computed geometric
// frequencies are up to 5 float32 ulp from the peer's.
void CheckTable(const RopeSpec& spec, int head_dim,
                const std::vector<double>& values, int axes,
                const json& table) {
  const auto rope =
      ResolveSpec(spec, head_dim, std::nullopt, MissingLength::kError);
  ASSERT_TRUE(rope.ok()) << rope.status();
  const auto rows = static_cast<std::int64_t>(values.size()) / axes;
  const std::int64_t pairs = rope->pairs();
  const auto [cos, sin] = test::BuildHalfTable(*rope, values, axes);
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::vector<float> peer_cos = Floats(table["cos"][row]);
    const std::vector<float> peer_sin = Floats(table["sin"][row]);
    ASSERT_EQ(peer_cos.size(), static_cast<std::size_t>(pairs));
    for (std::int64_t i = 0; i < pairs; ++i) {
      const std::int32_t axis =
          rope->axis_of_pair.empty() ? 0 : rope->axis_of_pair[i];
      const double angle =
          rope->inv_freq[i] * std::abs(values[axis * rows + row]);
      const bool recorded =
          std::holds_alternative<ExplicitFrequencies>(spec.scaling);
      // Each library's value is off by an ulp.
      const double bound = 1.5e-7 + (recorded ? 0 : 5 * 0x1p-23 * angle);
      EXPECT_NEAR(cos[row * pairs + i], peer_cos[i], bound) << row << " " << i;
      EXPECT_NEAR(sin[row * pairs + i], peer_sin[i], bound) << row << " " << i;
    }
  }
}

std::vector<float> Apply(const RopeSpec& spec, const json& tensor,
                         const std::vector<double>& values, int axes) {
  return test::Rotated(interpretation::LookupOf(spec), Layout::kBhsd,
                       tensor["shape"].get<Shape>(), TensorData(tensor), values,
                       axes);
}

class AxialPeerTest : public testing::TestWithParam<std::string> {
 protected:
  int axes() const { return peer_["axes"].get<int>(); }
  int pairs() const { return peer_["rotary_dim"].get<int>() / 2; }
  bool halves_per_axis() const {
    return peer_["pairing_in"] == "half_per_axis";
  }

  // Returns whether each axis has its own geometric frequencies, in the order
  // of its pairs.
  bool HasGeometricFrequenciesPerAxis() const {
    const auto axis = peer_["pair_axis"].get<std::vector<int>>();
    const auto inv_freq = peer_["inv_freq"].get<std::vector<double>>();
    for (int i = 1; i < pairs(); ++i) {
      if (axis[i] < axis[i - 1]) return false;
      if (axis[i] > axis[i - 1] && inv_freq[i] != 1) return false;
    }
    return true;
  }

  RopeSpec PerAxisSpec() const {
    RopeSpec spec;
    spec.rotary_dim = 2 * pairs();
    spec.pairing = PairingOf(peer_["pairing_in"]);
    spec.angle_precision = AnglePrecision::kFloat32;
    spec.rope_theta = peer_["config"].value("rope_theta", 10000.0);
    RotaryAxes rotary;
    rotary.assignment = AxisAssignment::kPerAxis;
    for (int axis = 0; axis < axes(); ++axis) {
      const auto of_pair = peer_["pair_axis"].get<std::vector<int>>();
      rotary.sections.push_back(static_cast<std::int32_t>(
          std::count(of_pair.begin(), of_pair.end(), axis)));
    }
    rotary.halves_per_axis = halves_per_axis();
    spec.axes = rotary;
    return spec;
  }

  // Returns a spec with the recorded frequencies themselves.
  RopeSpec ExplicitSpec() const {
    RopeSpec spec;
    spec.rotary_dim = 2 * pairs();
    spec.pairing = PairingOf(peer_["pairing_in"]);
    spec.angle_precision = AnglePrecision::kFloat32;
    const std::vector<float> inv_freq = Floats(peer_["inv_freq"]);
    ExplicitFrequencies frequencies;
    frequencies.axes = axes();
    for (int axis = 0; axis < axes(); ++axis) {
      for (int i = 0; i < pairs(); ++i) {
        frequencies.values.push_back(peer_["pair_axis"][i] == axis ? inv_freq[i]
                                                                   : 0);
      }
    }
    spec.scaling = frequencies;
    return spec;
  }

  RopeSpec Spec() const {
    return halves_per_axis() ? PerAxisSpec() : ExplicitSpec();
  }

  const json peer_ = LoadPeer("rope", GetParam());
};

TEST_P(AxialPeerTest, GeometricFrequenciesPerAxisAreItsOwn) {
  if (!HasGeometricFrequenciesPerAxis()) {
    GTEST_SKIP() << "its pairs are not a ladder for each axis in turn";
  }
  const auto rope = ResolveSpec(PerAxisSpec(), peer_["head_dim"].get<int>(),
                                std::nullopt, MissingLength::kError);
  ASSERT_TRUE(rope.ok()) << rope.status();
  EXPECT_EQ(rope->axis_of_pair,
            peer_["pair_axis"].get<std::vector<std::int32_t>>());
  for (int i = 0; i < pairs(); ++i) {
    const double expected = peer_["inv_freq"][i].get<double>();
    // The peers are within 5 float32 ulp of exact arithmetic.
    EXPECT_NEAR(rope->inv_freq[i], expected, 5 * 0x1p-23 * expected) << i;
  }
}

TEST_P(AxialPeerTest, TableAgrees) {
  CheckTable(Spec(), peer_["head_dim"].get<int>(),
             PositionsOf(peer_["table"]["positions"]), axes(), peer_["table"]);
}

TEST_P(AxialPeerTest, RotationAgrees) {
  const json& apply = peer_["apply"];
  ASSERT_TRUE(apply.is_object());
  for (const char* name : {"q", "k"}) {
    const std::vector<float> out =
        Apply(Spec(), apply[name], PositionsOf(apply["positions"]), axes());
    const std::vector<float> expected =
        TensorData(apply[std::string(name) + "_out"]);
    ASSERT_EQ(out.size(), expected.size());
    for (std::size_t i = 0; i < out.size(); ++i) {
      // Recorded frequencies allow 5e-7. Geometric frequencies
      // (halves_per_axis) differ from the peer's by up to 5 float32 ulp. At
      // positions up to 63 this turns an angle by up to 5 * 2^-23 * 63, and
      // changes an element by up to 4 times as much, because elements are below
      // 2.
      const double reach = halves_per_axis() ? 4 * 5 * 0x1p-23 * 63 : 0;
      EXPECT_NEAR(out[i], expected[i], 5e-7 + reach)
          << name << " element " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Recorded, AxialPeerTest,
                         testing::ValuesIn(PeerCases("rope", "rope_axial")),
                         NameOf);

// Row p of the image's table belongs to the patch in column p mod 24 and row p
// div 24, both counted from 1; the last row belongs to the class token, at 0.
TEST(AxialImagePeerTest, Llama4VisionTurnsByColumnThenRow) {
  const json peer = LoadPeer("rope", "llama-4-vision");
  RopeSpec spec;
  spec.rotary_dim = peer["head_dim"].get<int>();
  spec.pairing = Pairing::kInterleaved;
  spec.rope_theta = 10000;
  spec.angle_precision = AnglePrecision::kFloat32;
  spec.axes =
      RotaryAxes{.assignment = AxisAssignment::kPerAxis, .sections = {22, 22}};
  const int width = peer["grid"][1].get<int>();
  const int patches = width * peer["grid"][0].get<int>();
  const auto rows = peer["rows"].get<std::vector<int>>();
  std::vector<double> positions;
  for (const int p : rows) {
    positions.push_back(p == patches ? 0 : p % width + 1);
  }
  for (const int p : rows) {
    positions.push_back(p == patches ? 0 : p / width + 1);
  }
  CheckTable(spec, spec.rotary_dim, positions, 2, peer["table"]);
}

class LowPrecisionPeerTest : public testing::TestWithParam<std::string> {};

// The service's result, rounded once, is within the peer's own roundings.
TEST_P(LowPrecisionPeerTest, IsWithinThePeersRoundings) {
  const json peer = LoadPeer("rope", GetParam());
  const bool bfloat = peer["dtype"] == "bfloat16";
  const reference::Format16 format =
      bfloat ? reference::kBfloat16 : reference::kFloat16;
  const double unit = std::ldexp(1, -format.mantissa_bits - 1);
  RopeSpec spec;
  spec.rotary_dim = peer["rotary_dim"].get<int>();
  spec.pairing = PairingOf(peer["pairing"]);
  spec.rope_theta = peer["rope_theta"].get<double>();
  const std::vector<double> positions = PositionsOf(peer["positions"]);
  const auto tokens = static_cast<std::int64_t>(positions.size());
  const std::int64_t width = spec.rotary_dim;
  for (const char* name : {"q", "k"}) {
    const Shape shape = peer[name]["shape"].get<Shape>();
    const std::vector<float> x = TensorData(peer[name]);
    const std::vector<float> expected =
        TensorData(peer[std::string(name) + "_out"]);
    std::vector<std::uint16_t> in(x.size()), out(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
      in[i] = reference::Encode16(format, x[i]);
    }
    ApplyRopeArgs args;
    args.rope = interpretation::LookupOf(spec);
    args.layout = Layout::kBhsd;
    args.positions = PositionIds{
        ConstTensorView{Dtype::kFloat64, Shape{tokens}, positions.data()}};
    const Dtype dtype = bfloat ? Dtype::kBfloat16 : Dtype::kFloat16;
    const ConstTensorView in_view = {dtype, shape, in.data()};
    const TensorView out_view = {dtype, shape, out.data()};
    const absl::Status applied =
        ApplyRope(args, &in_view, &out_view, nullptr, nullptr);
    ASSERT_TRUE(applied.ok()) << applied;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const std::size_t channel = i % width;
      const std::size_t other = spec.pairing == Pairing::kInterleaved ? i ^ 1
                                : channel < std::size_t(width) / 2
                                    ? i + width / 2
                                    : i - width / 2;
      const double position = positions[i / width % tokens];
      const double reach = std::abs(x[i]) + std::abs(x[other]);
      // The peer's angle is a float32 product, with a frequency that is 5 ulp
      // off; its table is rounded to 16 bits, unless it is float32; its result
      // and the service's are each rounded to 16 bits, and may be in the next
      // binade.
      const double table = peer["table_dtype"] == "float32" ? 0x1p-24 : unit;
      const double angle = 6 * 0x1p-23 * position;
      const double bound = reach * (table + angle + 4 * 0x1p-24) +
                           2 * unit * (std::abs(expected[i]) + reach * unit);
      EXPECT_NEAR(reference::Decode16(format, out[i]), expected[i], bound)
          << name << " element " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Recorded, LowPrecisionPeerTest,
                         testing::ValuesIn(PeerCases("rope",
                                                     "rope_low_precision")),
                         NameOf);

class TiledPeerTest : public testing::TestWithParam<std::string> {};

// Channel c of D channels has frequency number c mod D/2, but the peer mixes
// channels 2i and 2i + 1: even channels belong to one rotation, and odd
// channels belong to another.
TEST_P(TiledPeerTest, IsEvenAndOddChannelsOfTwoRotations) {
  const json peer = LoadPeer("rope", GetParam());
  const int width = peer["head_dim"].get<int>();
  const int pairs = width / 2;
  const std::vector<float> expected = TensorData(peer["q_out"]);
  for (int odd = 0; odd < 2; ++odd) {
    RopeSpec spec;
    spec.rotary_dim = width;
    spec.pairing = Pairing::kInterleaved;
    ExplicitFrequencies frequencies;
    for (int i = 0; i < pairs; ++i) {
      const int step = (2 * i + odd) % pairs;
      frequencies.values.push_back(
          std::pow(10000.0, -static_cast<double>(step) / pairs));
    }
    spec.scaling = frequencies;
    const std::vector<double> positions = PositionsOf(peer["positions"]);
    const std::vector<float> out = Apply(spec, peer["q"], positions, 1);
    ASSERT_EQ(out.size(), expected.size());
    for (std::size_t i = odd; i < out.size(); i += 2) {
      const std::vector<float> x = TensorData(peer["q"]);
      const double position = positions[i / width % positions.size()];
      const double reach = std::abs(x[i]) + std::abs(x[i ^ 1]);
      // The peer's angle is a float32 product with a frequency that is up to 5
      // ulp off. Each library then rounds four float32 operations.
      EXPECT_NEAR(out[i], expected[i],
                  reach * (6 * 0x1p-23 * position + 8 * 0x1p-24))
          << "element " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Recorded, TiledPeerTest,
                         testing::ValuesIn(PeerCases("rope",
                                                     "rope_tiled_interleaved")),
                         NameOf);

TEST(PeerKindsTest, EveryRecordedKindIsTested) {
  std::size_t tested = PeerCases("rope", "rope_axial_image").size();
  EXPECT_EQ(tested, 1u);
  for (const char* kind :
       {"rope", "rope_axial", "rope_low_precision", "rope_tiled_interleaved"}) {
    EXPECT_FALSE(PeerCases("rope", kind).empty()) << kind;
    tested += PeerCases("rope", kind).size();
  }
  const std::filesystem::directory_iterator files(
      std::string(POSENC_TEST_DATA) + "/peers/rope");
  EXPECT_EQ(std::distance(begin(files), end(files)),
            static_cast<std::ptrdiff_t>(tested));
}

}  // namespace
}  // namespace posenc::core
