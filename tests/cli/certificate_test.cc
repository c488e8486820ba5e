// `posenc doctor --cache`: keys of correct and of wrong engines. This file
// rotates keys from the formula, in long double.

#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <map>

#include "client/tools/check/random.h"
#include "tests/fixtures/cli.h"

namespace posenc::cli {
namespace {

using testing::HasSubstr;

constexpr int kHeads = 2, kTokens = 5, kDim = 16;

std::vector<double> Geometric(double base, int width, double factor = 1) {
  std::vector<double> w;
  for (int i = 0; i < width / 2; ++i) {
    w.push_back(std::pow(base, -2.0 * i / width) / factor);
  }
  return w;
}

// How an engine rotates the keys of a layer.
struct Engine {
  std::vector<double> frequencies = Geometric(10000, kDim);
  bool interleaved = false;
  double amplitude = 1;
  bool rotates = true;
  // Angles, tables and products in float32 (tables in bfloat16 if
  // bfloat16_tables), or else exact.
  bool float32 = false;
  bool bfloat16_tables = false;
  // Angles, cosines and sines in float32; products exact.
  bool float32_tables = false;
};

float Bfloat16(float value) {
  char bytes[2];
  check::SetElement(v1::DTYPE_BFLOAT16, bytes, 0, value);
  return static_cast<float>(
      check::ElementAt({v1::DTYPE_BFLOAT16, {1}, bytes}, 0));
}

// Rotates a pair of keys as transformers does.
void TurnInFloat32(const Engine& engine, double frequency,
                   std::int64_t position, long double* x, long double* y) {
  const auto rounded = [&](float value) {
    return engine.bfloat16_tables ? Bfloat16(value) : value;
  };
  const float angle =
      static_cast<float>(position) * static_cast<float>(frequency);
  const float c = rounded(std::cos(angle)), s = rounded(std::sin(angle));
  const float a = rounded(static_cast<float>(*x));
  const float b = rounded(static_cast<float>(*y));
  const float ac = rounded(a * c), bs = rounded(b * s);
  const float as = rounded(a * s), bc = rounded(b * c);
  *x = rounded(ac - bs);
  *y = rounded(as + bc);
}

class CertificateTest : public PosencTest {
 protected:
  // Returns the keys of a layer at positions start, start + 1, ..., in the
  // layout bhsd.
  std::vector<double> Keys(const Engine& engine, int layer,
                           std::int64_t start) const {
    check::Random random(static_cast<std::uint64_t>(layer) + 1);
    std::vector<double> keys;
    for (int h = 0; h < kHeads; ++h) {
      for (int s = 0; s < kTokens; ++s) {
        std::vector<long double> row;
        for (int d = 0; d < kDim; ++d) row.push_back(random.Normal());
        const int pairs = static_cast<int>(engine.frequencies.size());
        for (int i = 0; engine.rotates && i < pairs; ++i) {
          const int x = engine.interleaved ? 2 * i : i;
          const int y = engine.interleaved ? 2 * i + 1 : i + pairs;
          if (engine.float32) {
            TurnInFloat32(engine, engine.frequencies[i], start + s, &row[x],
                          &row[y]);
            continue;
          }
          const long double angle =
              static_cast<long double>(start + s) * engine.frequencies[i];
          long double c = std::cos(angle), sine = std::sin(angle);
          if (engine.float32_tables) {
            const float rounded = static_cast<float>(start + s) *
                                  static_cast<float>(engine.frequencies[i]);
            c = std::cos(rounded);
            sine = std::sin(rounded);
          }
          const long double a = row[x], b = row[y];
          row[x] = engine.amplitude * (a * c - b * sine);
          row[y] = engine.amplitude * (a * sine + b * c);
        }
        for (const long double value : row) {
          keys.push_back(static_cast<double>(value));
        }
      }
    }
    return keys;
  }

  // Keys of one layer, as a quantised cache has them.
  void WriteIntegers(const std::string& name) const {
    const std::string bytes(kHeads * kTokens * kDim * 4, '\1');
    Safetensors file;
    file.entries.push_back({"layers.0.k",
                            "I32",
                            {1, kHeads, kTokens, kDim},
                            absl::MakeConstSpan(bytes)});
    ASSERT_TRUE(WriteSafetensors(Path(name), file).ok());
  }

  void WriteKeys(const std::string& name, v1::Dtype dtype,
                 const std::map<int, std::vector<double>>& layers,
                 const std::string& prefix = "layers.") const {
    Safetensors file;
    std::map<int, std::string> bytes;
    const bool float64 = dtype == v1::DTYPE_FLOAT64;
    const std::size_t size = float64 ? 8 : dtype == v1::DTYPE_FLOAT32 ? 4 : 2;
    for (const auto& [layer, keys] : layers) {
      bytes[layer].resize(keys.size() * size);
      if (float64) {
        std::memcpy(bytes[layer].data(), keys.data(), bytes[layer].size());
      }
      for (std::size_t i = 0; !float64 && i < keys.size(); ++i) {
        check::SetElement(dtype, bytes[layer].data(),
                          static_cast<std::int64_t>(i),
                          static_cast<float>(keys[i]));
      }
      file.entries.push_back({prefix + std::to_string(layer) + ".k",
                              float64     ? "F64"
                              : size == 4 ? "F32"
                                          : "BF16",
                              {1, kHeads, kTokens, kDim},
                              absl::MakeConstSpan(bytes[layer])});
    }
    ASSERT_TRUE(WriteSafetensors(Path(name), file).ok());
  }

  // Writes both files: `cached` puts keys at 100, and `theirs` at 100 + moved.
  void WriteCaches(const std::vector<Engine>& cached,
                   const std::vector<Engine>& theirs, std::int64_t moved,
                   v1::Dtype dtype = v1::DTYPE_FLOAT32) const {
    std::map<int, std::vector<double>> before, after;
    for (std::size_t layer = 0; layer < cached.size(); ++layer) {
      before[layer] = Keys(cached[layer], static_cast<int>(layer), 100);
      after[layer] = Keys(theirs[layer], static_cast<int>(layer), 100 + moved);
    }
    WriteKeys("before.safetensors", dtype, before);
    WriteKeys("after.safetensors", dtype, after);
  }

  void WriteConfig(Json more = Json::object()) const {
    Json config = {{"model_type", "llama"},
                   {"hidden_size", 128},
                   {"head_dim", kDim},
                   {"num_attention_heads", 8},
                   {"num_hidden_layers", 4},
                   {"rope_theta", 10000.0},
                   {"max_position_embeddings", 8192}};
    config.update(more);
    WriteText("config.json", config.dump());
  }

  std::string Flags(std::int64_t shift, const std::string& more = "") const {
    return "doctor --cache " + Path("before.safetensors") + " --after " +
           Path("after.safetensors") + " --config " + Path("config.json") +
           " --layout bhsd --start 100 --shift " + std::to_string(shift) + " " +
           more;
  }

  // Returns the message of the only finding, which must have this id.
  std::string Message(const std::string& id, std::int64_t shift,
                      const std::string& more = "") const {
    const Outcome outcome = Posenc("--json " + Flags(shift, more));
    EXPECT_EQ(outcome.exit_code, 1) << outcome.text;
    const Json output = outcome.json();
    if (!output.is_object() || output["findings"].size() != 1) {
      ADD_FAILURE() << outcome.text;
      return "";
    }
    EXPECT_EQ(output["findings"][0]["id"], id);
    EXPECT_TRUE(output["findings"][0]["layers"].is_array());
    EXPECT_FALSE(output["findings"][0]["fix"].get<std::string>().empty());
    return output["findings"][0]["message"];
  }
};

TEST_F(CertificateTest, KeysOfARightEngineAreCertifiedInEveryDtype) {
  WriteConfig();
  for (const v1::Dtype dtype :
       {v1::DTYPE_FLOAT64, v1::DTYPE_FLOAT32, v1::DTYPE_BFLOAT16}) {
    for (const std::int64_t shift : {1, 1021, -37}) {
      WriteCaches(std::vector<Engine>(4), std::vector<Engine>(4), shift, dtype);
      const Outcome outcome = Posenc("--json " + Flags(shift));
      ASSERT_EQ(outcome.exit_code, 0) << outcome.text;
      const Json output = outcome.json();
      ASSERT_EQ(output["certificate"].size(), 4);
      for (const Json& layer : output["certificate"]) {
        EXPECT_EQ(layer["verdict"], "certified");
        EXPECT_EQ(layer["heads"], kHeads);
        EXPECT_EQ(layer["elements"], kHeads * kTokens * kDim);
        EXPECT_GT(layer["max_error_ulps"].get<double>(), 0);
        EXPECT_LE(layer["max_error_ulps"].get<double>(),
                  layer["bound_ulps"].get<double>());
        EXPECT_EQ(layer["encoding_hash"].get<std::string>().size(), 64);
      }
      EXPECT_EQ(output["files"]["cache_sha256"].get<std::string>().size(), 64);
      EXPECT_NE(output["files"]["cache_sha256"],
                output["files"]["after_sha256"]);
    }
  }
}

TEST_F(CertificateTest, KeysOfAnEngineInFloat32AreCertified) {
  Engine engine;
  engine.float32 = true;
  for (const int width : {kDim, 12}) {
    WriteConfig(
        {{"partial_rotary_factor", width / 16.0}, {"model_type", "stablelm"}});
    engine.frequencies = Geometric(10000, width);
    for (const std::int64_t shift : {1, 1021, -37, 900000}) {
      WriteCaches(std::vector<Engine>(4, engine),
                  std::vector<Engine>(4, engine), shift);
      const Outcome outcome = Posenc(Flags(shift));
      EXPECT_EQ(outcome.exit_code, 0) << shift << outcome.text;
    }
  }
}

TEST_F(CertificateTest, TablesOfTheKeysDtypeHaveABoundOfTheirOwn) {
  WriteConfig();
  Engine engine;
  engine.float32 = engine.bfloat16_tables = true;
  WriteCaches(std::vector<Engine>(2, engine), std::vector<Engine>(2, engine),
              1021, v1::DTYPE_BFLOAT16);
  EXPECT_EQ(Posenc(Flags(1021, "--dtype-bound 4")).exit_code, 0);
  const Outcome outcome = Posenc(Flags(1021, "--dtype-bound 0.5"));
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.text,
              HasSubstr("layers 0-1 moved by their own angles, to within 4 "
                        "ulps and not 0.5: as with cosines and sines of "
                        "bfloat16"));
  EXPECT_THAT(outcome.text, HasSubstr("fix: give --dtype-bound 4 if"));
}

// A float64 key that is rotated by a float32 table is off by the table's
// rounding: sqrt(2) 2^-25 of its length at each of the two positions.
TEST_F(CertificateTest, Float64KeysMayHaveTablesOfFloat32) {
  WriteConfig();
  Engine engine;
  engine.float32_tables = true;
  for (const std::int64_t shift : {1, 1021, -37, 900000}) {
    WriteCaches({engine}, {engine}, shift, v1::DTYPE_FLOAT64);
    const Outcome outcome = Posenc(Flags(shift));
    EXPECT_EQ(outcome.exit_code, 1);
    EXPECT_THAT(outcome.text,
                HasSubstr("layer 0 moved by their own angles, to within "
                          "2147483648 ulps and not 4: as with cosines and "
                          "sines of float32"));
    EXPECT_THAT(outcome.text,
                HasSubstr("fix: give --dtype-bound 2147483648 if"));
    EXPECT_EQ(Posenc(Flags(shift, "--dtype-bound 2147483648")).exit_code, 0);
  }
}

// With float64 keys, the check finds an error that is a thousand times smaller
// than the error of float32 angles.
TEST_F(CertificateTest, Float64KeysAreHeldToAnglesOfFloat64) {
  WriteConfig();
  Engine engine;
  engine.frequencies[0] *= 1 + 0x1p-34;
  WriteCaches({engine}, {engine}, 1021, v1::DTYPE_FLOAT32);
  EXPECT_EQ(Posenc(Flags(1021)).exit_code, 0);
  WriteCaches({engine}, {engine}, 1021, v1::DTYPE_FLOAT64);
  EXPECT_EQ(Posenc(Flags(1021)).exit_code, 1);
}

TEST_F(CertificateTest, OneWrongKeyIsLocated) {
  WriteConfig();
  WriteCaches(std::vector<Engine>(1), std::vector<Engine>(1), 1021);
  std::vector<double> keys = Keys({}, 0, 1121);
  keys[(1 * kTokens + 3) * kDim + 2] += 0.25;  // head 1, token 3
  WriteKeys("after.safetensors", v1::DTYPE_FLOAT32, {{0, keys}});
  EXPECT_THAT(Message("cache.mismatch", 1021),
              HasSubstr("beyond the bound: 1 of 5 tokens and 1 of 2 heads, "
                        "first token 3 of head 1"));
}

TEST_F(CertificateTest, APatternFindsLayersOfOtherNames) {
  WriteConfig();
  WriteKeys("before.safetensors", v1::DTYPE_FLOAT32, {{3, Keys({}, 3, 100)}},
            "cache_");
  WriteKeys("after.safetensors", v1::DTYPE_FLOAT32, {{3, Keys({}, 3, 107)}},
            "cache_");
  const Outcome outcome = Posenc("--json " + Flags(7, "--layers 'cache_*'"));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
  EXPECT_EQ(outcome.json()["certificate"][0]["layer"], 3);
}

TEST_F(CertificateTest, LayersThatMovedWithTheGlobalBaseAreExplained) {
  WriteConfig({{"model_type", "gemma3_text"},
               {"rope_theta", 1000000.0},
               {"rope_local_base_freq", 10000.0},
               {"sliding_window", 512},
               {"sliding_window_pattern", 2}});
  const Engine local, global = {.frequencies = Geometric(1000000, kDim)};
  const std::vector<Engine> right = {local, global, local, global};
  WriteCaches(right, right, 1021);
  EXPECT_EQ(Posenc(Flags(1021)).exit_code, 0);
  std::map<int, std::vector<double>> before, after;
  for (int layer = 0; layer < 4; ++layer) {
    before[layer] = Keys(right[layer], layer, 100);
    after[layer] = Keys(right[layer], layer, 1121);
  }
  // The engine rotates the cached keys of a local layer by the global base.
  after[0] = before[0];
  for (int row = 0; row < kHeads * kTokens; ++row) {
    for (int i = 0; i < kDim / 2; ++i) {
      const double angle = 1021 * global.frequencies[i];
      double& x = after[0][row * kDim + i];
      double& y = after[0][row * kDim + i + kDim / 2];
      const double a = x, b = y;
      x = a * std::cos(angle) - b * std::sin(angle);
      y = a * std::sin(angle) + b * std::cos(angle);
    }
  }
  WriteKeys("after.safetensors", v1::DTYPE_FLOAT32, after);
  EXPECT_THAT(Message("cache.mismatch", 1021),
              HasSubstr("layer 0 moved as with rope_theta 1000000 (the global "
                        "layers'), but their own is 10000"));
}

TEST_F(CertificateTest, OtherMovesOfAnEngineAreExplained) {
  const Engine right, pairs = {.interleaved = true};
  const Engine part = {.frequencies = Geometric(10000, 8)};
  const Engine tables = {.float32_tables = true};
  const Engine both = {.interleaved = true, .float32_tables = true};
  const Json plain = Json::object();
  const Json linear = {
      {"rope_scaling", {{"rope_type", "linear"}, {"factor", 4.0}}}};
  const struct {
    const Engine& engine;
    int layers, moved, shift;
    const Json& config;
    const char* did;
  } kCases[] = {
      {right, 2, 0, 64, plain, "layers 0-1 did not move"},
      {right, 2, 63, 64, plain, "layers 0-1 moved by 63, not by 64"},
      {right, 2, 1021, 1021, linear, "layers 0-1 moved without scaling"},
      {pairs, 1, 1021, 1021, plain, "layer 0 moved with interleaved pairs"},
      {part, 1, 1021, 1021, plain,
       "layer 0 moved 8 channels, but their own are 16"},
      // These rows have keys of float64.
      {tables, 1, 1020, 1021, plain, "layer 0 moved by 1020, not by 1021"},
      {tables, 1, 1021, 1021, linear, "layer 0 moved without scaling"},
      {both, 1, 1021, 1021, plain, "layer 0 moved with interleaved pairs"}};
  for (const auto& of : kCases) {
    WriteConfig(of.config);
    const std::vector<Engine> engines(of.layers, of.engine);
    WriteCaches(
        engines, engines, of.moved,
        of.engine.float32_tables ? v1::DTYPE_FLOAT64 : v1::DTYPE_FLOAT32);
    EXPECT_THAT(Message("cache.mismatch", of.shift), HasSubstr(of.did));
  }
}

TEST_F(CertificateTest, AnAmplitudeThatCountsTwiceIsExplained) {
  WriteConfig({{"rope_scaling",
                {{"rope_type", "yarn"},
                 {"factor", 4.0},
                 {"attention_factor", 1.25},
                 {"original_max_position_embeddings", 2048}}}});
  // The frequencies are the configuration's, resolved by posenc.
  const Json resolved =
      Posenc("--json resolve --config " + Path("config.json")).json();
  Engine once, twice;
  once.frequencies = resolved["inv_freq"].get<std::vector<double>>();
  twice.frequencies = once.frequencies;
  once.amplitude = 1.25;
  twice.amplitude = 1.25 * 1.25;
  WriteCaches({once}, {twice}, 1021);
  EXPECT_THAT(Message("cache.mismatch", 1021),
              HasSubstr("layer 0 have the amplitude 1.25 twice"));
}

TEST_F(CertificateTest, NoiseOfTwoPrefillsIsJudgedByItsAngles) {
  WriteConfig();
  std::map<int, std::vector<double>> before, after;
  check::Random random(9);
  for (int layer = 0; layer < 2; ++layer) {
    before[layer] = Keys({}, layer, 100);
    after[layer] = Keys({}, layer, 1121);
    if (layer == 0) continue;
    for (double& value : after[layer]) value += 1e-3 * random.Normal();
  }
  WriteKeys("before.safetensors", v1::DTYPE_FLOAT32, before);
  WriteKeys("after.safetensors", v1::DTYPE_FLOAT32, after);
  EXPECT_EQ(Posenc(Flags(1021)).exit_code, 1);
  EXPECT_EQ(Posenc(Flags(1021, "--measured")).exit_code, 0);
  EXPECT_THAT(Message("cache.mismatch", 1020, "--measured"),
              HasSubstr("moved by 1021, not by 1020"));
  // The keys of the first layer have no noise.
  for (double& value : after[0]) value += 1e-3 * random.Normal();
  WriteKeys("after.safetensors", v1::DTYPE_FLOAT32, after);
  EXPECT_EQ(Posenc(Flags(1021, "--measured")).exit_code, 1);
}

TEST_F(CertificateTest, InputsThatCannotBeCertifiedAreNamed) {
  WriteConfig();
  WriteCaches(std::vector<Engine>(1), std::vector<Engine>(1), 5);
  EXPECT_THAT(Message("cache.not-certifiable", 0), HasSubstr("--shift is 0"));
  EXPECT_THAT(Message("cache.not-certifiable", 5, "--layers 'q.*'"),
              HasSubstr("matches --layers q.*"));
  EXPECT_THAT(Message("cache.not-certifiable", 5, "--layers '*.v'"),
              HasSubstr("matches --layers"));
  std::vector<double> keys = Keys({}, 0, 105);
  keys[3] = std::numeric_limits<double>::quiet_NaN();
  WriteKeys("after.safetensors", v1::DTYPE_FLOAT32, {{0, keys}});
  EXPECT_THAT(Message("cache.not-certifiable", 5),
              HasSubstr("layer 0 holds NaN or infinity"));
  WriteKeys("after.safetensors", v1::DTYPE_BFLOAT16, {{0, Keys({}, 0, 105)}});
  EXPECT_THAT(Message("cache.not-certifiable", 5), HasSubstr("bfloat16"));
  WriteIntegers("before.safetensors");
  WriteIntegers("after.safetensors");
  EXPECT_THAT(Message("cache.not-certifiable", 5),
              HasSubstr("layer 0 is int32"));
  WriteKeys("before.safetensors", v1::DTYPE_FLOAT32, {{0, Keys({}, 0, 100)}});
  WriteKeys("after.safetensors", v1::DTYPE_FLOAT32, {{1, Keys({}, 1, 105)}});
  const Outcome outcome = Posenc(Flags(5));
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.text, HasSubstr("has no keys of layer 0"));
}

TEST_F(CertificateTest, ExitCodesTellUsageFromFiles) {
  WriteConfig();
  WriteCaches(std::vector<Engine>(1), std::vector<Engine>(1), 5);
  const std::string cache = "doctor --cache " + Path("before.safetensors");
  EXPECT_EQ(Posenc(cache).exit_code, 2);
  EXPECT_EQ(Posenc(Flags(5, "--dtype-bound 0")).exit_code, 2);
  EXPECT_EQ(Posenc(Flags(5, Path("config.json"))).exit_code, 2);
  for (const char* flag :
       {"--after x", "--layout bhsd", "--start 1", "--shift 1", "--layers x",
        "--measured", "--dtype-bound 4", "--config x"}) {
    const Outcome outcome =
        Posenc("doctor " + Path("config.json") + " " + flag);
    EXPECT_EQ(outcome.exit_code, 2) << flag;
    EXPECT_THAT(outcome.text, HasSubstr("belongs to --cache")) << flag;
  }
  WriteText("after.safetensors", "damaged");
  EXPECT_EQ(Posenc(Flags(5)).exit_code, 3);
  std::filesystem::remove(Path("after.safetensors"));
  EXPECT_EQ(Posenc(Flags(5)).exit_code, 3);
}

}  // namespace
}  // namespace posenc::cli
