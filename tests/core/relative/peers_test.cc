// Compares biases, indices and scores with recorded results of transformers
// (data/peers/README.md).

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "core/relative/bias.h"
#include "core/relative/score.h"
#include "nlohmann/json.hpp"
#include "tests/fixtures/core/bias.h"
#include "tests/fixtures/core/peer_data.h"

namespace posenc::core {
namespace {

using nlohmann::json;

// The relative error of one rounding to float32.
constexpr double kRounding = 0x1p-24;

std::vector<double> Numbers(const json& list) {
  std::vector<double> numbers;
  for (const json& entry : list) {
    if (entry.is_array()) {
      for (const double number : Numbers(entry)) numbers.push_back(number);
    } else {
      numbers.push_back(static_cast<double>(entry.get<float>()));
    }
  }
  return numbers;
}

// The data of a recorded tensor, with its unit.
std::vector<double> Data(const json& tensor) {
  std::vector<double> data = Numbers(tensor.at("data"));
  const double unit = tensor.value("unit", 1.0);
  for (double& value : data) value *= unit;
  return data;
}

// Reorders a tensor [tokens, heads, channels] to [heads, tokens, channels].
std::vector<double> HeadsFirst(const std::vector<double>& data,
                               std::int64_t tokens, std::int64_t heads,
                               std::int64_t channels) {
  std::vector<double> out(data.size());
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (std::int64_t h = 0; h < heads; ++h) {
      for (std::int64_t c = 0; c < channels; ++c) {
        out[(h * tokens + t) * channels + c] =
            data[(t * heads + h) * channels + c];
      }
    }
  }
  return out;
}

std::vector<double> Build(const Bias& bias, const BiasRange& range,
                          std::optional<Dtype> dtype = std::nullopt) {
  BiasArgs args;
  args.bias = bias;
  args.range = range;
  args.dtype = dtype;
  absl::StatusOr<BiasTiles> tiles = BiasTiles::Create(args);
  EXPECT_TRUE(tiles.ok()) << tiles.status();
  if (!tiles.ok()) return {};
  OwnedTensor out(tiles->dtype(),
                  {tiles->heads(), range.query_length, range.key_length});
  tiles->Fill(range, out.data(), range.key_length,
              range.query_length * range.key_length);
  std::vector<double> values;
  for (std::int64_t n = 0; n < out.count(); ++n) values.push_back(out[n]);
  return values;
}

std::vector<double> Scores(const ScoreArgs& args, const OwnedTensor& q,
                           const OwnedTensor& k) {
  const absl::StatusOr<ScoreExtents> extents =
      ValidateScore(args, q.view(), k.view());
  EXPECT_TRUE(extents.ok()) << extents.status();
  if (!extents.ok()) return {};
  OwnedTensor out(extents->dtype, extents->shape);
  EXPECT_TRUE(FillScores(args, q.view(), k.view(), 0,
                         out.count() / extents->shape.back(), extents->dtype,
                         out.data(), [] { return absl::OkStatus(); })
                  .ok());
  std::vector<double> values;
  for (std::int64_t n = 0; n < out.count(); ++n) values.push_back(out[n]);
  return values;
}

void ExpectWithin(double actual, double expected, double bound,
                  std::size_t at) {
  EXPECT_LE(std::fabs(actual - expected), bound)
      << at << ": " << actual << " for " << expected;
}

// BLOOM raises a float32 base to powers in float32: the base's rounding counts
// once for each factor, and the power's rounding once.
void CheckSlopes(const json& peer) {
  const int heads = peer.at("heads");
  const std::vector<double> recorded = Numbers(peer.at("slopes"));
  const std::vector<double> slopes = AlibiSlopes(heads, 8);
  ASSERT_EQ(recorded.size(), slopes.size());
  int c = 1;
  while (2 * c <= heads) c *= 2;
  for (int h = 0; h < heads; ++h) {
    const int power = h < c ? h + 1 : 2 * (h - c) + 1;
    ExpectWithin(slopes[h], recorded[h], recorded[h] * (power + 2) * kRounding,
                 h);
  }
}

// All queries have the last query's row. The peer computes pow and a quotient
// in float32, each within an ulp, and then the product.
void CheckMpt(const json& peer) {
  Alibi alibi;
  alibi.heads = peer.at("heads");
  alibi.max_bias = peer.at("max_bias").get<double>();
  const std::vector<double> recorded_slopes = Numbers(peer.at("slopes"));
  const std::vector<double> slopes = AlibiSlopes(alibi.heads, *alibi.max_bias);
  ASSERT_EQ(slopes.size(), recorded_slopes.size());
  for (std::size_t h = 0; h < slopes.size(); ++h) {
    ExpectWithin(slopes[h], recorded_slopes[h], slopes[h] * 4 * kRounding, h);
  }
  const std::int64_t keys = peer.at("key_length");
  const std::vector<double> recorded = Data(peer.at("bias"));
  const std::vector<double> bias = Build(alibi, {keys - 1, 1, 0, keys});
  ASSERT_EQ(bias.size(), recorded.size());
  for (std::size_t n = 0; n < bias.size(); ++n) {
    ExpectWithin(bias[n], recorded[n], std::fabs(bias[n]) * 6 * kRounding, n);
  }
}

// The peer computes bfloat16(slope) * key, and rounds it to bfloat16. A row
// differs from -slope * distance by a constant, so this test changes the sign
// of the slopes, and puts the query at 0. All bits are equal.
void CheckFalcon(const json& peer) {
  Alibi alibi;
  alibi.heads = peer.at("heads");
  const std::vector<double> exact = AlibiSlopes(alibi.heads, 8);
  const OwnedTensor rounded(Dtype::kBfloat16,
                            {static_cast<std::int64_t>(exact.size())}, exact);
  for (std::size_t h = 0; h < exact.size(); ++h) {
    alibi.slopes.push_back(-rounded[h]);
  }
  const std::int64_t keys = peer.at("key_length");
  EXPECT_EQ(Build(alibi, {0, 1, 0, keys}, Dtype::kBfloat16),
            Data(peer.at("bias")));
}

T5Buckets ReadT5(const json& peer) {
  T5Buckets buckets;
  buckets.num_buckets = peer.at("num_buckets");
  buckets.max_distance = peer.at("max_distance");
  buckets.bidirectional = peer.at("bidirectional");
  return buckets;
}

// The record has a bucket for each value of key - query in a range.
void CheckT5Buckets(const json& peer) {
  const std::int64_t first = peer.at("relative_position")[0];
  const std::int64_t last = peer.at("relative_position")[1];
  std::vector<double> recorded;
  for (const json& run : peer.at("runs")) {
    recorded.resize(run[0].get<std::int64_t>() - first,
                    recorded.empty() ? 0 : recorded.back());
    recorded.push_back(run[1].get<double>());
  }
  recorded.resize(last - first + 1, recorded.back());
  EXPECT_EQ(Build(T5Bias{ReadT5(peer), {}}, {0, 1, first, last - first + 1}),
            recorded);
}

void CheckT5Bias(const json& peer) {
  const json& table = peer.at("table");
  const OwnedTensor weights(Dtype::kFloat32, table.at("shape").get<Shape>(),
                            Data(table));
  EXPECT_EQ(Build(T5Bias{ReadT5(peer), weights.view()},
                  {peer.at("past"), peer.at("query_length"), 0,
                   peer.at("key_length")}),
            Data(peer.at("bias")));
}

DebertaBuckets ReadDeberta(const json& peer) {
  return {peer.at("bucket_size"), peer.at("max_position")};
}

// The peer clips when it reads the table; recorded buckets are not clipped.
std::vector<double> Clipped(std::vector<double> buckets, double span) {
  for (double& bucket : buckets) {
    bucket = std::clamp(bucket + span, 0., 2 * span - 1);
  }
  return buckets;
}

void CheckDebertaBuckets(const json& peer) {
  const DebertaBuckets buckets = ReadDeberta(peer);
  const std::vector<double> recorded = Numbers(peer.at("buckets"));
  EXPECT_EQ(Build(RelativeIndex{buckets},
                  {peer.at("first"), static_cast<std::int64_t>(recorded.size()),
                   0, 1}),
            Clipped(recorded, buckets.bucket_size));
}

void CheckDebertaRelative(const json& peer) {
  const DebertaBuckets buckets = ReadDeberta(peer);
  EXPECT_EQ(Build(RelativeIndex{buckets},
                  {0, peer.at("query_length"), 0, peer.at("key_length")}),
            Clipped(Numbers(peer.at("relative")), buckets.bucket_size));
}

void CheckDebertaScores(const json& peer) {
  const std::int64_t heads = peer.at("heads"), width = peer.at("head_dim");
  const Shape recorded_shape = peer.at("q").at("shape").get<Shape>();
  const std::int64_t tokens = recorded_shape[1];
  const Shape shape = {1, heads, tokens, width};
  // Terms are exact in float64, so the content's term can be subtracted.
  const OwnedTensor q(Dtype::kFloat64, shape, Data(peer.at("q")));
  const OwnedTensor k(Dtype::kFloat64, shape, Data(peer.at("k")));
  const std::int64_t rows = peer.at("rel_embeddings").at("shape")[0];
  const OwnedTensor table(
      Dtype::kFloat64, {heads, rows, width},
      HeadsFirst(Data(peer.at("rel_embeddings")), rows, heads, width));
  DebertaScore content, c2p, p2c;
  content.buckets = c2p.buckets = p2c.buckets = ReadDeberta(peer);
  std::vector<double> first, second;
  const std::vector<double> none = Scores({content, 0, 0, {}}, q, k);
  for (const std::string term : peer.at("terms")) {
    if (term == "c2p") c2p.position_keys = table.view();
    if (term == "p2c") p2c.position_queries = table.view();
  }
  const std::vector<double> to_position = Scores({c2p, 0, 0, {}}, q, k);
  const std::vector<double> to_content = Scores({p2c, 0, 0, {}}, q, k);
  const std::vector<double> recorded = Data(peer.at("scores"));
  const double divisor = peer.at("scale_divisor");
  ASSERT_EQ(none.size(), recorded.size());
  for (std::size_t n = 0; n < recorded.size(); ++n) {
    const double a = (to_position[n] - none[n]) / divisor;
    const double b = (to_content[n] - none[n]) / divisor;
    // The peer rounds the divisor, two quotients and their sum to float32.
    ExpectWithin(a + b, recorded[n],
                 (std::fabs(a) + std::fabs(b)) * 4 * kRounding, n);
  }
  EXPECT_EQ(Build(RelativeIndex{content.buckets}, {0, tokens, 0, tokens}),
            Clipped(Numbers(peer.at("relative_index")), rows / 2.));
}

// The peer's index is clip(query - key, -m, m - 1) + m. The contract's index
// equals it if the table is reversed, or if keys and queries are exchanged.
void CheckShawIndex(const json& peer) {
  const std::int32_t m = peer.at("max_length");
  const std::int64_t n = peer.at("length");
  const std::vector<double> recorded = Numbers(peer.at("index"));
  const std::vector<double> reversed =
      Build(RelativeIndex{ClippedDistance{m - 1, m}}, {0, n, 0, n});
  const std::vector<double> transposed =
      Build(RelativeIndex{ClippedDistance{m, m - 1}}, {0, n, 0, n});
  ASSERT_EQ(recorded.size(), reversed.size());
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      EXPECT_EQ(2 * m - 1 - reversed[i * n + j], recorded[i * n + j]);
      EXPECT_EQ(transposed[j * n + i], recorded[i * n + j]);
    }
  }
}

// Rows are for distances from klen downwards; query i is at klen - qlen + i.
// All numbers are small multiples of 2^-12, so float32 sums are exact.
void CheckXlScores(const json& peer) {
  const std::int64_t queries = peer.at("query_length");
  const std::int64_t keys = peer.at("key_length");
  const Shape heads_width = peer.at("u").at("shape").get<Shape>();
  const std::int64_t heads = heads_width[0], width = heads_width[1];
  const OwnedTensor u(Dtype::kFloat32, heads_width, Data(peer.at("u")));
  const OwnedTensor v(Dtype::kFloat32, heads_width, Data(peer.at("v")));
  const OwnedTensor q(Dtype::kFloat32, {1, heads, queries, width},
                      HeadsFirst(Data(peer.at("q")), queries, heads, width));
  const OwnedTensor k(Dtype::kFloat32, {1, heads, keys, width},
                      HeadsFirst(Data(peer.at("k")), keys, heads, width));
  // The rows go down to distance 0; attn_type bi also has rows for keys after
  // the query.
  const std::int64_t rows = peer.at("first_distance").get<std::int64_t>() + 1;
  std::vector<double> r_data = Data(peer.at("r"));
  r_data.resize(rows * heads * width);
  const OwnedTensor r(Dtype::kFloat32, {heads, rows, width},
                      HeadsFirst(r_data, rows, heads, width));
  TransformerXlScore xl;
  xl.u = u.view();
  xl.v = v.view();
  xl.r = r.view();
  const std::vector<double> scores = Scores({xl, keys - queries, 0, {}}, q, k);
  const std::vector<double> recorded = Data(peer.at("scores"));
  const double scale = peer.at("scale");
  ASSERT_EQ(scores.size(), recorded.size());
  std::size_t n = 0;
  for (std::int64_t h = 0; h < heads; ++h) {
    for (std::int64_t i = 0; i < queries; ++i) {
      for (std::int64_t j = 0; j < keys; ++j, ++n) {
        if (j > keys - queries + i) {
          EXPECT_EQ(scores[n], -std::numeric_limits<double>::infinity());
        } else {
          EXPECT_EQ(scores[n] * scale, recorded[n]) << h << i << j;
        }
      }
    }
  }
}

using Checker = void (*)(const json&);

const std::map<std::string, Checker>& Checkers() {
  static const auto& checkers = *new std::map<std::string, Checker>{
      {"alibi_slopes", CheckSlopes},
      {"alibi_mpt", CheckMpt},
      {"alibi_falcon", CheckFalcon},
      {"t5_buckets", CheckT5Buckets},
      {"t5_bias", CheckT5Bias},
      {"deberta_buckets", CheckDebertaBuckets},
      {"deberta_relative", CheckDebertaRelative},
      {"deberta_scores", CheckDebertaScores},
      {"shaw_index", CheckShawIndex},
      {"xl_scores", CheckXlScores}};
  return checkers;
}

class RelativePeersTest : public testing::TestWithParam<std::string> {};

TEST_P(RelativePeersTest, Agrees) {
  const json peer = test::LoadPeer("relative", GetParam());
  const auto checker = Checkers().find(peer.at("kind").get<std::string>());
  ASSERT_NE(checker, Checkers().end()) << peer.at("kind");
  checker->second(peer);
}

INSTANTIATE_TEST_SUITE_P(Recorded, RelativePeersTest,
                         testing::ValuesIn(test::PeerCases("relative")),
                         [](const testing::TestParamInfo<std::string>& info) {
                           return test::TestName(info.param);
                         });

}  // namespace
}  // namespace posenc::core
