// Compares rotations with recorded results of mlx-lm, of ONNX's RotaryEmbedding
// and of onnxruntime's (data/peers/README.md).

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "core/interpretation/source.h"
#include "core/rotation/apply.h"
#include "nlohmann/json.hpp"
#include "tests/fixtures/core/peer_data.h"
#include "tests/fixtures/core/peer_rotation.h"
#include "tests/reference/float_formats.h"

namespace posenc::core {
namespace {

using nlohmann::json;
using test::LoadPeer;
using test::PairingOf;
using test::PeerCases;
using test::TensorData;

std::string NameOf(const testing::TestParamInfo<std::string>& info) {
  return test::TestName(info.param);
}

class MlxPeerTest : public testing::TestWithParam<std::string> {
 protected:
  interpretation::RopeSource Source() const {
    json config = {
        {"model_type", "llama"},
        {"hidden_size", 4 * peer_["head_dim"].get<int>()},
        {"num_attention_heads", 4},
        {"head_dim", peer_["head_dim"]},
        {"max_position_embeddings", peer_["max_position_embeddings"]},
        {"rope_theta", peer_["rope_theta"]}};
    const json scaling = peer_.value("scaling_config", json());
    if (scaling.is_object()) config["rope_scaling"] = scaling;
    if (peer_["pairing"] == "interleaved") config["rope_traditional"] = true;
    interpretation::RopeSource source;
    source.source = interpretation::ConfigJson{config.dump()};
    source.profile = interpretation::Profile::kMlx;
    return source;
  }

  const json peer_ = LoadPeer("mlx", GetParam());
};

TEST_P(MlxPeerTest, ReadsItsFrequenciesAndAmplitude) {
  const auto rope =
      interpretation::ResolveSource(Source(), 0, MissingLength::kError);
  ASSERT_TRUE(rope.ok()) << rope.status();
  EXPECT_EQ(rope->spec.rotary_dim, peer_["rotary_dim"].get<int>());
  EXPECT_EQ(rope->spec.pairing, PairingOf(peer_["pairing"]));
  const double amplitude = peer_["amplitude"].get<double>();
  EXPECT_NEAR(rope->attention_factor, amplitude, 1e-15);
  if (!peer_.contains("periods") || peer_["periods"].is_null()) return;
  ASSERT_EQ(rope->inv_freq.size(), peer_["periods"].size());
  for (std::size_t i = 0; i < rope->inv_freq.size(); ++i) {
    const double period = peer_["periods"][i].get<double>();
    // Some float32 roundings: power, product, blend.
    EXPECT_NEAR(1 / rope->inv_freq[i], period, 8 * 0x1p-24 * period) << i;
  }
}

TEST_P(MlxPeerTest, RotationAgrees) {
  const Shape shape = peer_["x"]["shape"].get<Shape>();
  const std::vector<float> x = TensorData(peer_["x"]);
  const int width = peer_["rotary_dim"].get<int>();
  const double amplitude = peer_["amplitude"].get<double>();
  for (std::size_t j = 0; j < peer_["positions"].size(); ++j) {
    const double position = peer_["positions"][j].get<double>();
    const std::vector<float> out =
        test::Rotated(interpretation::LookupOf(Source()), Layout::kBhsd, shape,
                      x, {position}, 1);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const std::size_t channel = i % width;
      const std::size_t other =
          PairingOf(peer_["pairing"]) == Pairing::kInterleaved ? i ^ 1
          : channel < std::size_t(width) / 2                   ? i + width / 2
                                                               : i - width / 2;
      const double reach = amplitude * (std::abs(x[i]) + std::abs(x[other]));
      // mlx's angle is position / period in float32, and the period is up to 5
      // ulp off. mlx then scales the input, and rotates it in float32.
      EXPECT_NEAR(out[i], peer_["out"][j][i].get<double>(),
                  reach * (6 * 0x1p-23 * position + 10 * 0x1p-24))
          << "position " << position << " element " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Recorded, MlxPeerTest,
                         testing::ValuesIn(PeerCases("mlx", "rope_apply_rows")),
                         NameOf);

TEST(MlxPeersTest, AllRecordsAreRead) {
  EXPECT_GE(PeerCases("mlx", "rope_apply_rows").size(), 7u);
}

// The operator's shapes: input [batch, heads, tokens, channels], or [batch,
// tokens, heads * channels]; caches [rows, pairs], or one row for each token.
struct Operator {
  explicit Operator(const json& peer)
      : attributes(peer["attributes"]), inputs(peer["inputs"]) {
    const Shape given = inputs["input"]["shape"].get<Shape>();
    const Shape cache = inputs["cos_cache"]["shape"].get<Shape>();
    pairs = cache.back();
    if (given.size() == 4) {
      layout = Layout::kBhsd;
      shape = given;
      batch = given[0], heads = given[1], tokens = given[2], width = given[3];
    } else {
      const std::int64_t rotary = attributes.value("rotary_embedding_dim", 0);
      heads = attributes.value("num_heads", std::int64_t{0});
      if (heads == 0) heads = given[2] / (rotary != 0 ? rotary : 2 * pairs);
      layout = Layout::kBshd;
      batch = given[0], tokens = given[1], width = given[2] / heads;
      shape = {batch, tokens, heads, width};
    }
    interleaved = attributes.value("interleaved", 0) != 0;
    for (std::int64_t b = 0; b < batch; ++b) {
      for (std::int64_t t = 0; t < tokens; ++t) rows.push_back(Row(b, t));
    }
  }

  // The cache row of a token.
  std::int64_t Row(std::int64_t b, std::int64_t t) const {
    if (!inputs.contains("position_ids")) return b * tokens + t;
    const json& ids = inputs["position_ids"]["data"];
    if (ids.size() == 1) return ids[0].get<std::int64_t>() + t;
    return ids[b * tokens + t].get<std::int64_t>();
  }

  std::int64_t Offset(std::int64_t b, std::int64_t h, std::int64_t t,
                      std::int64_t channel) const {
    return layout == Layout::kBhsd
               ? ((b * heads + h) * tokens + t) * width + channel
               : ((b * tokens + t) * heads + h) * width + channel;
  }

  json attributes, inputs;
  Layout layout;
  Shape shape;
  std::int64_t batch, heads, tokens, width, pairs;
  bool interleaved;
  std::vector<std::int64_t> rows;  // [batch, tokens]
};

class OnnxPeerTest : public testing::TestWithParam<std::string> {};

// The suite's caches are random numbers without an encoding: each entry (c, s)
// rotates its pair by atan2(s, c) with amplitude |(c, s)|. The test compares
// one pair at a time.
TEST_P(OnnxPeerTest, IsOneRotationForEachPair) {
  const json peer = LoadPeer("onnx", GetParam());
  const Operator op(peer);
  const std::vector<float> x = TensorData(op.inputs["input"]);
  const std::vector<float> cos = TensorData(op.inputs["cos_cache"]);
  const std::vector<float> sin = TensorData(op.inputs["sin_cache"]);
  std::vector<float> result = x;  // channels past the pairs pass through
  std::vector<double> reach(x.size(), 0);
  for (std::int64_t token = 0; token < op.batch * op.tokens; ++token) {
    for (std::int64_t h = 0; h < op.heads; ++h) {
      for (std::int64_t i = 0; i < op.pairs; ++i) {
        const std::int64_t a = op.interleaved ? 2 * i : i;
        const std::int64_t b = op.interleaved ? a + 1 : i + op.pairs;
        const std::int64_t row = token / op.tokens, column = token % op.tokens;
        const std::int64_t first = op.Offset(row, h, column, a);
        const std::int64_t second = op.Offset(row, h, column, b);
        const double c = cos[op.rows[token] * op.pairs + i];
        const double s = sin[op.rows[token] * op.pairs + i];
        RopeSpec spec;
        spec.rotary_dim = 2;
        spec.pairing = Pairing::kHalfSplit;
        spec.attention_factor = std::hypot(c, s);
        spec.scaling = ExplicitFrequencies{.values = {std::atan2(s, c)}};
        const std::vector<float> rotated =
            test::Rotated(interpretation::LookupOf(spec), Layout::kThd,
                          {1, 1, 2}, {x[first], x[second]}, {1}, 1);
        result[first] = rotated[0];
        result[second] = rotated[1];
        reach[first] = reach[second] =
            *spec.attention_factor * (std::abs(x[first]) + std::abs(x[second]));
      }
    }
  }
  const std::vector<float> expected = TensorData(peer["output"]);
  ASSERT_EQ(expected.size(), result.size());
  for (std::size_t i = 0; i < result.size(); ++i) {
    // Each side rounds two products and a sum in float32; our side also rounds
    // the table.
    EXPECT_NEAR(result[i], expected[i], 8 * 0x1p-24 * reach[i]) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Recorded, OnnxPeerTest,
                         testing::ValuesIn(PeerCases("onnx", "onnx_rotary")),
                         NameOf);

class OrtPeerTest : public testing::TestWithParam<std::string> {
 protected:
  OrtPeerTest() : peer_(LoadPeer("onnx", GetParam())), op_(peer_) {}

  bool is_half() const { return peer_.value("dtype", "") == "float16"; }
  // The relative error of one rounding to the tensor's dtype.
  double unit() const { return is_half() ? 0x1p-11 : 0x1p-24; }

  const json peer_;
  const Operator op_;
};

// Rows of the caches are cos and sin of the float32 angles p * 10000^(-i/n).
TEST_P(OrtPeerTest, ItsCachesAreThatOfBase10000) {
  const std::vector<float> cos = TensorData(op_.inputs["cos_cache"]);
  const std::vector<float> sin = TensorData(op_.inputs["sin_cache"]);
  for (std::size_t at = 0; at < cos.size(); ++at) {
    const double position = static_cast<double>(at / op_.pairs);
    const double angle =
        position *
        std::pow(10000.0, -static_cast<double>(at % op_.pairs) / op_.pairs);
    const double bound = unit() + 6 * 0x1p-23 * position;
    EXPECT_NEAR(cos[at], std::cos(angle), bound) << at;
    EXPECT_NEAR(sin[at], std::sin(angle), bound) << at;
  }
}

TEST_P(OrtPeerTest, RotationAgrees) {
  RopeSpec spec;
  spec.rotary_dim = static_cast<std::int32_t>(2 * op_.pairs);
  spec.pairing = op_.interleaved ? Pairing::kInterleaved : Pairing::kHalfSplit;
  spec.rope_theta = 10000;
  ApplyRopeArgs args;
  args.rope = interpretation::LookupOf(spec);
  args.layout = op_.layout;
  args.positions = PositionIds{ConstTensorView{
      Dtype::kInt64, Shape{op_.batch, op_.tokens}, op_.rows.data()}};
  const std::vector<float> x = TensorData(op_.inputs["input"]);
  std::vector<float> out(x.size());
  std::vector<std::uint16_t> in_bits(x.size()), out_bits(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    in_bits[i] = reference::Encode16(reference::kFloat16, x[i]);
  }
  const Dtype dtype = is_half() ? Dtype::kFloat16 : Dtype::kFloat32;
  const void* in_data =
      is_half() ? static_cast<const void*>(in_bits.data()) : x.data();
  void* out_data = is_half() ? static_cast<void*>(out_bits.data()) : out.data();
  const ConstTensorView in_view = {dtype, op_.shape, in_data};
  const TensorView out_view = {dtype, op_.shape, out_data};
  const absl::Status applied =
      ApplyRope(args, &in_view, &out_view, nullptr, nullptr);
  ASSERT_TRUE(applied.ok()) << applied;
  const std::vector<float> expected = TensorData(peer_["output"]);
  for (std::int64_t token = 0; token < op_.batch * op_.tokens; ++token) {
    for (std::int64_t h = 0; h < op_.heads; ++h) {
      for (std::int64_t channel = 0; channel < op_.width; ++channel) {
        const auto at = [&](std::int64_t c) {
          return op_.Offset(token / op_.tokens, h, token % op_.tokens, c);
        };
        const std::int64_t i = at(channel);
        const double got =
            is_half() ? reference::Decode16(reference::kFloat16, out_bits[i])
                      : out[i];
        if (channel >= 2 * op_.pairs) {
          EXPECT_EQ(got, expected[i]) << "channel " << channel;
          continue;
        }
        const std::int64_t other = op_.interleaved       ? channel ^ 1
                                   : channel < op_.pairs ? channel + op_.pairs
                                                         : channel - op_.pairs;
        const double reach = std::abs(x[i]) + std::abs(x[at(other)]);
        const auto position = static_cast<double>(op_.rows[token]);
        // The errors of the cache (its rounding, and its float32 angle), of the
        // peer's products, sum and result in the tensor's dtype (4), and of our
        // result (1), which is computed in float32.
        EXPECT_NEAR(got, expected[i],
                    reach * (6 * unit() + 6 * 0x1p-23 * position + 4 * 0x1p-24))
            << "element " << i;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Recorded, OrtPeerTest,
                         testing::ValuesIn(PeerCases("onnx", "ort_rotary")),
                         NameOf);

}  // namespace
}  // namespace posenc::core
