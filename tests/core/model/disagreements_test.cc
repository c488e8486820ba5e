// One test for each point at which projects disagree about the rotary encoding
// of one and the same configuration. Expected numbers come from the formulas of
// the papers, here in long double, or were published with the disagreement.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/model/compare.h"
#include "core/model/source.h"
#include "core/rope/apply.h"
#include "core/rope/table.h"
#include "nlohmann/json.hpp"
#include "tests/fixtures/model.h"
#include "tests/reference/float_formats.h"

namespace posenc::core {
namespace {

using nlohmann::json;
using testing::Contains;
using testing::HasSubstr;
using Real = long double;

json Model(const std::string& type, int head_dim, double theta,
           std::int64_t maximum, const json& scaling) {
  json config = {
      {"model_type", type},       {"hidden_size", head_dim * 8},
      {"num_attention_heads", 8}, {"head_dim", head_dim},
      {"rope_theta", theta},      {"max_position_embeddings", maximum}};
  if (!scaling.is_null()) config["rope_scaling"] = scaling;
  return config;
}

json Yarn(double factor, std::int64_t original, const json& more = {}) {
  json scaling = {{"rope_type", "yarn"},
                  {"factor", factor},
                  {"original_max_position_embeddings", original}};
  if (!more.is_null()) scaling.update(more);
  return scaling;
}

json Latent(const json& scaling) {
  json config = Model("deepseek_v3", 192, 1e4, 163840, scaling);
  config["qk_rope_head_dim"] = 64;
  config["qk_nope_head_dim"] = 128;
  return config;
}

Real G(Real s, Real m) { return s <= 1 ? 1 : 0.1L * m * std::log(s) + 1; }

// YaRN's frequencies (arXiv:2309.00071, appendix), with the ramp's ends given.
std::vector<Real> YarnFrequencies(int n, Real theta, Real s, Real low,
                                  Real high) {
  std::vector<Real> inv_freq;
  for (int i = 0; i < n; ++i) {
    const Real w = std::pow(theta, -static_cast<Real>(i) / n);
    const Real r = std::clamp((i - low) / (high - low), Real{0}, Real{1});
    inv_freq.push_back(r * w / s + (1 - r) * w);
  }
  return inv_freq;
}

Real RampPair(int d, Real theta, Real original, Real turns) {
  return d * std::log(original / (2 * std::numbers::pi_v<Real> * turns)) /
         (2 * std::log(theta));
}

// Expects frequencies that are `expected` up to the rounding of one float64.
void ExpectFrequencies(const ResolvedRope& rope,
                       const std::vector<Real>& expected) {
  ASSERT_EQ(rope.inv_freq.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    SCOPED_TRACE(i);
    ExpectSame(rope.inv_freq[i], expected[i]);
  }
}

TEST(DisagreementsTest, Disagreement01YarnTruncate) {
  // gpt-oss: untruncated 8.0928 / 17.398, truncated 8 / 18.
  const Real low = RampPair(64, 150000, 4096, 32);
  const Real high = RampPair(64, 150000, 4096, 1);
  EXPECT_NEAR(static_cast<double>(low), 8.0928, 5e-5);
  EXPECT_NEAR(static_cast<double>(high), 17.398, 5e-4);
  const auto exact = YarnFrequencies(32, 150000, 32, low, high);
  const auto whole = YarnFrequencies(32, 150000, 32, 8, 18);
  for (const bool truncate : {false, true}) {
    const json config = Model("gpt_oss", 64, 150000, 131072,
                              Yarn(32, 4096, {{"truncate", truncate}}));
    ExpectFrequencies(Read(config, Profile::kGptOss), exact);
    ExpectFrequencies(Read(config, Profile::kHf), truncate ? whole : exact);
    ExpectFrequencies(Read(config, Profile::kVllm), truncate ? whole : exact);
    ExpectFrequencies(Read(config, Profile::kMlx), whole);
    ExpectFrequencies(Read(config, Profile::kLlamaCpp), whole);
  }
  // Absent, it is on; one level down, transformers does not find it.
  ExpectFrequencies(
      Read(Model("qwen2", 64, 150000, 131072, Yarn(32, 4096)), Profile::kHf),
      whole);
  json nested = Model("gpt_oss", 64, 150000, 131072, nullptr);
  json parameters = Yarn(32, 4096, {{"truncate", false}});
  parameters["rope_theta"] = 150000;
  nested["rope_parameters"] = {{"full_attention", parameters}};
  const ResolvedRope hf = Read(nested, Profile::kHf);
  ExpectFrequencies(hf, whole);
  EXPECT_TRUE(Warned(hf, "truncate false is not read"));
  ExpectFrequencies(Read(nested, Profile::kVllm), exact);
}

TEST(DisagreementsTest, Disagreement02YarnHighClamp) {
  // The ramp would end at pair 73 of 32: all clamp it to d - 1 = 63, none to
  // the last pair, 31.
  const json config =
      Model("qwen2", 64, 100, 1 << 20, Yarn(8, 131072, {{"beta_slow", 0.5}}));
  const Real low = std::floor(RampPair(64, 100, 131072, 32));
  const Real high = std::ceil(RampPair(64, 100, 131072, 0.5));
  ASSERT_GT(high, 63);
  for (const Profile profile :
       {Profile::kHf, Profile::kVllm, Profile::kLlamaCpp, Profile::kDeepseek,
        Profile::kMlx}) {
    ExpectFrequencies(Read(config, profile),
                      YarnFrequencies(32, 100, 8, low, 63));
  }
  EXPECT_FALSE(TryRead(config, Profile::kGptOss).ok());
}

TEST(DisagreementsTest, Disagreement03YarnAmplitudeKeys) {
  // DeepSeek-R1-0528-Qwen3-8B ships 1 / (0.1 ln 4 + 1) as attn_factor.
  const json attn =
      Model("qwen3", 128, 1e6, 131072,
            Yarn(4, 32768, {{"attn_factor", 0.8782488562869419}}));
  // SGLang reads it, and vLLM until 0.30.0 (reading_rules_test). llama.cpp's
  // converter writes it where its loader overwrites it.
  const ResolvedRope cpp = Read(attn, Profile::kLlamaCpp);
  ExpectSame(cpp.attention_factor, G(4, 1));
  EXPECT_TRUE(Warned(cpp, "attn_factor is not read"));
  ExpectSame(Read(attn, Profile::kVllm).attention_factor, G(4, 1));
  const ResolvedRope hf = Read(attn, Profile::kHf);
  ExpectSame(hf.attention_factor, G(4, 1));
  EXPECT_TRUE(Warned(hf, "attn_factor is not read"));
  const ResolvedRope mlx = Read(attn, Profile::kMlx);
  ExpectSame(mlx.attention_factor, G(4, 1));
  EXPECT_TRUE(Warned(mlx, "attn_factor is not read"));

  const json given = Model("qwen3", 128, 1e6, 131072,
                           Yarn(4, 32768, {{"attention_factor", 1.25}}));
  EXPECT_EQ(Read(given, Profile::kHf).attention_factor, 1.25);
  EXPECT_EQ(Read(given, Profile::kVllm).attention_factor, 1.25);
  for (const Profile profile : {Profile::kLlamaCpp, Profile::kGptOss,
                                Profile::kDeepseek, Profile::kMlx}) {
    const ResolvedRope rope = Read(given, profile);
    ExpectSame(rope.attention_factor, G(4, 1));
    EXPECT_TRUE(Warned(rope, "attention_factor is not read"));
  }
}

TEST(DisagreementsTest, Disagreement04MscalePairBothOne) {
  // Ministral 3: s = 16, the ratio is 1; the plain 0.1 ln 16 + 1 is 1.2773.
  const json pair =
      Model("ministral3", 128, 1e6, 262144,
            Yarn(16, 16384, {{"mscale", 1.0}, {"mscale_all_dim", 1.0}}));
  for (const Profile profile :
       {Profile::kHf, Profile::kVllm, Profile::kLlamaCpp, Profile::kDeepseek,
        Profile::kMistral, Profile::kMlx}) {
    EXPECT_EQ(Read(pair, profile).attention_factor, 1);
  }
  EXPECT_NEAR(Read(pair, Profile::kGptOss).attention_factor, 1.2773, 5e-5);
  // One of the pair alone.
  const json alone =
      Model("qwen3", 128, 1e6, 262144, Yarn(16, 16384, {{"mscale", 0.707}}));
  ExpectSame(Read(alone, Profile::kHf).attention_factor, G(16, 1));
  ExpectSame(Read(alone, Profile::kVllm).attention_factor, G(16, 1));
  ExpectSame(Read(alone, Profile::kDeepseek).attention_factor, G(16, 0.707));
  ExpectSame(Read(alone, Profile::kMlx).attention_factor, G(16, 0.707));
  const json all_dim = Model("qwen3", 128, 1e6, 262144,
                             Yarn(16, 16384, {{"mscale_all_dim", 1}}));
  ExpectSame(Read(all_dim, Profile::kHf).attention_factor, G(16, 1));
  EXPECT_EQ(Read(all_dim, Profile::kMlx).attention_factor, 1);
  // llama.cpp's converter keeps neither for this model.
  ExpectSame(Read(alone, Profile::kLlamaCpp).attention_factor, G(16, 1));
}

TEST(DisagreementsTest, Disagreement05SoftmaxScaleIsSeparate) {
  const json both =
      Latent(Yarn(40, 4096, {{"mscale", 1.0}, {"mscale_all_dim", 1.0}}));
  for (const Profile profile :
       {Profile::kHf, Profile::kVllm, Profile::kLlamaCpp, Profile::kDeepseek,
        Profile::kMlx}) {
    const ResolvedRope rope = Read(both, profile);
    EXPECT_EQ(rope.attention_factor, 1);
    ExpectSame(rope.softmax_scale_multiplier, G(40, 1) * G(40, 1));
  }
  // mscale_all_dim alone: transformers has 1.3689 in the table as well, and
  // 1.8739 on the scores; the ratio of DeepSeek's formula is 1.
  const json alone = Latent(Yarn(40, 4096, {{"mscale_all_dim", 1.0}}));
  const ResolvedRope hf = Read(alone, Profile::kHf);
  EXPECT_NEAR(hf.attention_factor, 1.3689, 5e-5);
  EXPECT_NEAR(hf.softmax_scale_multiplier, 1.8739, 5e-5);
  EXPECT_EQ(Read(alone, Profile::kDeepseek).attention_factor, 1);
  EXPECT_EQ(Read(alone, Profile::kVllm).attention_factor, 1);
  // Models of plain attention take no such factor.
  EXPECT_EQ(Read(Model("qwen3", 128, 1e6, 16384,
                       Yarn(4, 4096, {{"mscale_all_dim", 1.0}})),
                 Profile::kHf)
                .softmax_scale_multiplier,
            1);
}

TEST(DisagreementsTest, Disagreement06ScaleOutsideTheExponent) {
  // A fully interpolated pair is w / s: neither theta^(-2i s / d), nor of
  // geometric frequencies whose base NTK has changed too.
  for (const Profile profile :
       {Profile::kHf, Profile::kVllm, Profile::kLlamaCpp, Profile::kDeepseek,
        Profile::kMlx}) {
    const ResolvedRope yarn =
        Read(Model("qwen2", 64, 1e4, 16384, Yarn(4, 4096)), profile);
    ExpectSame(yarn.inv_freq[31], std::pow(1e4L, -31 / 32.0L) / 4);
    ExpectSame(yarn.inv_freq[1], std::pow(1e4L, -1 / 32.0L));
    const ResolvedRope linear =
        Read(Model("qwen2", 64, 1e4, 16384,
                   {{"rope_type", "linear"}, {"factor", 4.0}}),
             profile);
    for (int i = 0; i < 32; ++i) {
      ExpectSame(linear.inv_freq[i], std::pow(1e4L, -i / 32.0L) / 4);
    }
  }
}

TEST(DisagreementsTest, Disagreement07DynamicNtkLength) {
  json config = Model("qwen2", 64, 1e4, 4096,
                      {{"rope_type", "dynamic"},
                       {"factor", 2.0},
                       {"original_max_position_embeddings", 1024}});
  const auto ladder = [](Real bracket) {
    const Real base = 1e4L * std::pow(bracket, 64 / 62.0L);
    std::vector<Real> inv_freq;
    for (int i = 0; i < 32; ++i) {
      inv_freq.push_back(std::pow(base, -i / 32.0L));
    }
    return inv_freq;
  };
  // The reference is max_position_embeddings, 4096, not the original 1024, and
  // s L / Lmax - (s - 1) grows with the length of each call.
  for (const Profile profile :
       {Profile::kHf, Profile::kDeepseek, Profile::kMlx}) {
    ExpectFrequencies(Read(config, profile, 4096), ladder(1));
    ExpectFrequencies(Read(config, profile, 6144), ladder(2));
    ExpectFrequencies(Read(config, profile, 8192), ladder(3));
    EXPECT_FALSE(TryRead(config, profile).ok());
  }
  // vLLM since 0.22.0: one table, of max_position_embeddings by
  // max_trained_positions, which is the same if absent. Before it is s^2 - s +
  // 1 = 3 at every length (reading_rules_test).
  for (const std::int64_t length : {1, 4096, 8192}) {
    ExpectFrequencies(Read(config, Profile::kVllm, length), ladder(1));
  }
  ExpectFrequencies(Read(config, Profile::kVllm), ladder(1));
  ExpectFrequencies(Read(config, Profile::kLlamaCpp), ladder(1));
  // Hunyuan's alpha is a constant for all.
  config["model_type"] = "hunyuan_v1_dense";
  config["rope_scaling"]["alpha"] = 1000.0;
  for (const Profile profile :
       {Profile::kHf, Profile::kVllm, Profile::kLlamaCpp, Profile::kMlx}) {
    ExpectFrequencies(Read(config, profile), ladder(1000));
  }
}

TEST(DisagreementsTest, Disagreement08LongRopeChoice) {
  std::vector<double> shorts(32, 1.0), longs(32, 4.0);
  const json config = [&] {
    json model = Model("phi3", 64, 1e4, 131072,
                       {{"type", "longrope"},
                        {"factor", 2.0},
                        {"short_factor", shorts},
                        {"long_factor", longs}});
    model["original_max_position_embeddings"] = 4096;
    return model;
  }();
  // The profile of transformers decides for each length.
  EXPECT_EQ(Read(config, Profile::kHf, 4096).inv_freq[0], 1);
  EXPECT_EQ(Read(config, Profile::kHf, 4097).inv_freq[0], 0.25);
  EXPECT_FALSE(TryRead(config, Profile::kHf).ok());
  // These profiles decide once, by the longest length that is served.
  for (const Profile profile : {Profile::kVllm, Profile::kLlamaCpp}) {
    const ResolvedRope rope = Read(config, profile);
    EXPECT_EQ(rope.inv_freq[0], 0.25);
    EXPECT_THAT(rope.assumptions,
                Contains(testing::Field(&Assumption::value, "131072")));
    EXPECT_EQ(Read(config, profile, 4096).inv_freq[0], 1);
    // The answer as a spec needs no length any more.
    const auto again = ResolveSpec(rope.spec, rope.head_dim, std::nullopt,
                                   MissingLength::kError);
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(again->inv_freq, rope.inv_freq);
    EXPECT_EQ(again->attention_factor, rope.attention_factor);
  }
  // Always long.
  EXPECT_EQ(Read(config, Profile::kMlx).inv_freq[0], 0.25);
  EXPECT_EQ(Read(config, Profile::kMlx, 16).inv_freq[0], 0.25);
  // `factor` wins in transformers alone: the others derive 32.
  const auto amplitude = [](Real s) {
    return std::sqrt(1 + std::log(s) / std::log(4096.0L));
  };
  ExpectSame(Read(config, Profile::kHf, 1).attention_factor, amplitude(2));
  for (const Profile profile :
       {Profile::kVllm, Profile::kLlamaCpp, Profile::kMlx}) {
    const ResolvedRope rope = Read(config, profile);
    ExpectSame(rope.attention_factor, amplitude(32));
    EXPECT_NEAR(rope.attention_factor, 1.1902, 5e-5);
    EXPECT_TRUE(Warned(rope, "factor is not read"));
  }
}

TEST(DisagreementsTest, Disagreement09Llama3WithoutABand) {
  const json config = Model("llama", 128, 5e5, 131072,
                            {{"rope_type", "llama3"},
                             {"factor", 16.0},
                             {"low_freq_factor", 1.0},
                             {"high_freq_factor", 1.0},
                             {"original_max_position_embeddings", 8192}});
  for (const Profile profile :
       {Profile::kHf, Profile::kVllm, Profile::kMlx, Profile::kLlamaCpp}) {
    const ResolvedRope rope = Read(config, profile);
    EXPECT_THAT(
        rope.assumptions,
        Contains(testing::Field(&Assumption::reason, HasSubstr("are both 1"))));
    ASSERT_EQ(rope.inv_freq.size(), 64u);
    for (int i = 0; i < 64; ++i) {
      const Real w = std::pow(5e5L, -i / 64.0L);
      const bool below = 2 * std::numbers::pi_v<Real> / w > 8192;
      ExpectSame(rope.inv_freq[i], below ? w / 16 : w);
    }
  }
  // Llama 3.1: 29 pairs kept, 6 blended, 29 scaled.
  json published = config;
  published["rope_scaling"]["factor"] = 8.0;
  published["rope_scaling"]["high_freq_factor"] = 4.0;
  int kept = 0, scaled = 0;
  const ResolvedRope rope = Read(published, Profile::kHf);
  for (int i = 0; i < 64; ++i) {
    const double w = std::pow(5e5, -i / 64.0);
    kept += std::abs(rope.inv_freq[i] / w - 1) < 1e-12;
    scaled += std::abs(rope.inv_freq[i] * 8 / w - 1) < 1e-12;
  }
  EXPECT_EQ(kept, 29);
  EXPECT_EQ(scaled, 29);
}

TEST(DisagreementsTest, Disagreement10PairingInAndOut) {
  const json config = Latent(nullptr);
  const ResolvedRope hf = Read(config, Profile::kHf);
  EXPECT_EQ(hf.spec.pairing, Pairing::kInterleaved);
  EXPECT_EQ(hf.spec.output_pairing, Pairing::kHalfSplit);
  for (const Profile profile : {Profile::kVllm, Profile::kLlamaCpp,
                                Profile::kDeepseek, Profile::kMlx}) {
    const ResolvedRope rope = Read(config, profile);
    EXPECT_EQ(rope.spec.pairing, Pairing::kInterleaved);
    EXPECT_EQ(rope.spec.output_pairing, Pairing::kInterleaved);
    EXPECT_THAT(CompareRopes(hf, rope).explanations,
                Contains(HasSubstr("pairing: interleaved in and half-split "
                                   "out against interleaved")));
  }
}

TEST(DisagreementsTest, Disagreement11ExponentOverTheWidthOrTheHead) {
  // A quarter of a head of 64: 8 pairs over 16 channels, or the first 8 of 32.
  json partial = Model("glm4", 64, 1e4, 4096, nullptr);
  partial["partial_rotary_factor"] = 0.25;
  const ResolvedRope narrow = Read(partial, Profile::kHf);
  ASSERT_EQ(narrow.inv_freq.size(), 8u);
  ExpectSame(narrow.inv_freq[1], std::pow(1e4L, -2 / 16.0L));
  const json proportional =
      Model("gemma4", 64, 1e4, 4096,
            {{"rope_type", "proportional"}, {"partial_rotary_factor", 0.25}});
  for (const Profile profile : {Profile::kHf, Profile::kVllm, Profile::kMlx}) {
    const ResolvedRope wide = Read(proportional, profile);
    ASSERT_EQ(wide.inv_freq.size(), 32u);
    ExpectSame(wide.inv_freq[1], std::pow(1e4L, -2 / 64.0L));
    ExpectSame(wide.inv_freq[7], std::pow(1e4L, -14 / 64.0L));
    EXPECT_EQ(wide.inv_freq[8], 0);
  }
}

TEST(DisagreementsTest, Disagreement12ImropeLeftovers) {
  // [24, 20, 20] over 64 pairs: 61 and 62 are beyond 3 * 20.
  json config = Model("qwen3_vl", 128, 5e6, 262144,
                      {{"rope_type", "default"},
                       {"mrope_interleaved", true},
                       {"mrope_section", {24, 20, 20}}});
  for (const Profile profile : {Profile::kHf, Profile::kVllm}) {
    const ResolvedRope rope = Read(config, profile);
    ASSERT_EQ(rope.axis_of_pair.size(), 64u);
    EXPECT_EQ(rope.axis_of_pair[59], 2);
    EXPECT_EQ(rope.axis_of_pair[61], 0);
    EXPECT_EQ(rope.axis_of_pair[62], 0);
    ExpectSame(rope.inv_freq[61], std::pow(5e6L, -61 / 64.0L));
  }
  // ggml: a fourth position, 0 in llama.cpp.
  const ResolvedRope ggml = Read(config, Profile::kLlamaCpp);
  EXPECT_EQ(ggml.axes(), 3);
  for (int i = 0; i < 64; ++i) {
    const bool still = i == 61 || i == 62;
    ExpectSame(ggml.inv_freq[i], still ? Real{0} : std::pow(5e6L, -i / 64.0L));
  }
  EXPECT_TRUE(Warned(ggml, "does not turn pairs 61, 62"));
  // Sections that claim every pair leave nothing over.
  config["rope_scaling"]["mrope_section"] = {11, 11, 10};
  config["head_dim"] = 64;
  EXPECT_EQ(Read(config, Profile::kLlamaCpp).inv_freq,
            Read(config, Profile::kHf).inv_freq);
}

// vLLM casts the table to the model's dtype, except for DeepSeek's; the service
// rotates 16-bit tensors by unrounded cosines, whatever the profile, and rounds
// the result once. A 16-bit table is to be had by asking for one.
TEST(DisagreementsTest, Disagreement18TableDtype) {
  constexpr reference::Format16 kFormat = reference::kBfloat16;
  constexpr int kTokens = 64, kPairs = 32, kStart = 4000;
  std::vector<std::uint16_t> x;
  for (int n = 0; n < kTokens * 2 * kPairs; ++n) {
    x.push_back(reference::Encode16(kFormat, (n * 37 % 129 - 64) / 64.0));
  }
  const Shape table_shape = {kTokens, kPairs};
  const Shape shape = {1, kTokens, 1, 2 * kPairs};
  std::vector<double> ids;
  for (int t = 0; t < kTokens; ++t) ids.push_back(kStart + t);
  const TokenPositions positions(ids, 1, 1, kTokens);
  for (const Profile profile :
       {Profile::kHf, Profile::kVllm, Profile::kDeepseek}) {
    const ResolvedRope rope =
        Read(Model("qwen2", 2 * kPairs, 1e6, 32768, nullptr), profile);
    std::vector<std::uint16_t> cos(kTokens * kPairs), sin(cos), out(x.size());
    const absl::Status built =
        BuildRopeTable(rope, positions, TableLayout::kHalf, TensorRole::kKey,
                       {Dtype::kBfloat16, table_shape, cos.data()},
                       {Dtype::kBfloat16, table_shape, sin.data()});
    ASSERT_TRUE(built.ok()) << built;
    ApplyRopeArgs args;
    args.rope = LookupOf(rope.spec);
    args.layout = Layout::kBshd;
    args.positions = StartPosition{kStart};
    const ConstTensorView in = {Dtype::kBfloat16, shape, x.data()};
    const TensorView result = {Dtype::kBfloat16, shape, out.data()};
    const absl::Status applied =
        ApplyRope(args, nullptr, nullptr, &in, &result);
    ASSERT_TRUE(applied.ok()) << applied;
    Real worst_of_table = 0;
    for (int t = 0; t < kTokens; ++t) {
      for (int i = 0; i < kPairs; ++i) {
        const Real angle = ids[t] * static_cast<Real>(rope.inv_freq[i]);
        const Real c = std::cos(angle), s = std::sin(angle);
        const Real rounded_c =
            reference::Decode16(kFormat, cos[t * kPairs + i]);
        const Real rounded_s =
            reference::Decode16(kFormat, sin[t * kPairs + i]);
        const int at = t * 2 * kPairs + i;
        const Real a = reference::Decode16(kFormat, x[at]);
        const Real b = reference::Decode16(kFormat, x[at + kPairs]);
        const Real length = std::hypot(a, b);
        if (length == 0) continue;
        const auto exact = static_cast<double>(a * c - b * s);
        // Float32: cosine, sine, two products and a difference are 3 units of
        // the pair's length; then one rounding to 16 bits.
        const auto before = static_cast<double>(3 * 0x1p-24L * length);
        EXPECT_NEAR(
            reference::Decode16(kFormat, out[at]), exact,
            before + reference::HalfUlp16(kFormat, std::abs(exact) + before));
        worst_of_table =
            std::max(worst_of_table,
                     std::abs(a * rounded_c - b * rounded_s - exact) / length);
      }
    }
    // Without any rounding of the result, a table of 8 bits alone is this far.
    EXPECT_GT(worst_of_table, 0x1p-9L);
  }
}

TEST(DisagreementsTest, Disagreement19MeaningOfScale) {
  // A bare "scale" divides positions for some and multiplies them for others:
  // it is never taken for the factor.
  const json config =
      Model("llama", 64, 1e4, 4096, {{"rope_type", "linear"}, {"scale", 4.0}});
  for (const Profile profile : {Profile::kHf, Profile::kVllm, Profile::kMlx}) {
    const auto details = GetErrorDetails(TryRead(config, profile).status());
    ASSERT_TRUE(details.has_value());
    EXPECT_EQ(details->reason, ErrorReason::kModelConfigInvalid);
    EXPECT_THAT(details->metadata,
                Contains(testing::Pair("key", "rope_scaling.factor")));
  }
}

TEST(DisagreementsTest, DeepseekV4TurnsByUnits) {
  json config = Model("deepseek_v4", 512, 1e4, 1048576, nullptr);
  config["compress_rope_theta"] = 160000.0;
  config["qk_rope_head_dim"] = 64;
  config["rope_scaling"] = Yarn(16, 65536);
  for (const Profile profile :
       {Profile::kVllm, Profile::kDeepseek, Profile::kMlx}) {
    RopeSource source;
    source.source = ConfigJson{config.dump()};
    source.profile = profile;
    source.layer_type = "compress";
    const auto rope = ResolveSource(source, 0, MissingLength::kError);
    ASSERT_TRUE(rope.ok()) << rope.status();
    EXPECT_EQ(rope->attention_factor, 1);
    EXPECT_EQ(rope->spec.slice, RotarySlice::kTrailing);
  }
}

}  // namespace
}  // namespace posenc::core
