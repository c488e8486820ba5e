// The `posenc` command itself, with the service inside its process.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numbers>
#include <string>
#include <vector>

#include "client/check/element.h"
#include "client/cli/file.h"
#include "client/cli/npy.h"
#include "client/cli/safetensors.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fixtures/cli.h"

namespace posenc::cli {
namespace {

using check::UlpAt;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr long double kPi = std::numbers::pi_v<long double>;

const char kLlama[] = "'" POSENC_TEST_DATA "/configs/llama-3.1-8b.json'";

// Llama 3.1's frequencies as its paper's code has them.
std::vector<long double> Llama3Frequencies() {
  std::vector<long double> values;
  for (int i = 0; i < 64; ++i) {
    const long double w = std::pow(500000.0L, -2.0L * i / 128);
    const long double turns = 8192 * w / (2 * kPi);
    const long double t = std::clamp((turns - 1) / (4 - 1), 0.0L, 1.0L);
    values.push_back((1 - t) * w / 8 + t * w);
  }
  return values;
}

TEST_F(PosencTest, InfoListsPresetsAndInstructionSet) {
  const Outcome outcome = Posenc("info --json");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.text;
  const Json json = outcome.json();
  ASSERT_TRUE(json.is_object()) << outcome.text;
  EXPECT_FALSE(json["instruction_set"].get<std::string>().empty());
  EXPECT_THAT(json["presets"].get<std::vector<std::string>>(),
              testing::Contains("llama-3.1-8b"));
}

TEST_F(PosencTest, ResolvesLlama31ToItsFormula) {
  for (const std::string& source : {std::string("--preset llama-3.1-8b"),
                                    std::string("--config ") + kLlama}) {
    const Outcome outcome = Posenc("resolve --json " + source);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.text;
    const Json json = outcome.json();
    ASSERT_TRUE(json.is_object()) << outcome.text;
    EXPECT_EQ(json["head_dim"], 128);
    EXPECT_EQ(json["amplitude"], 1);
    const std::vector<long double> expected = Llama3Frequencies();
    ASSERT_EQ(json["inv_freq"].size(), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      // Rounded once to double, from a formula in at least double.
      EXPECT_NEAR(json["inv_freq"][i].get<double>(),
                  static_cast<double>(expected[i]), expected[i] * 0x1p-50)
          << i;
    }
  }
}

TEST_F(PosencTest, ResolvePrintsEverythingForPeople) {
  const Outcome outcome =
      Posenc(std::string("resolve --config ") + kLlama +
             " --compare-spec '{\"rotaryDim\":128,\"ropeTheta\":500000,"
             "\"pairing\":\"PAIRING_HALF_SPLIT\"}'");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.text;
  for (const char* part :
       {"rotary_dim", "half_split", "llama3: factor 8", "content hash",
        "wavelength", "compared with", "frequencies differ by up to"}) {
    EXPECT_THAT(outcome.text, HasSubstr(part));
  }
}

TEST_F(PosencTest, ComparingWithItselfFindsNoDifference) {
  const Outcome outcome = Posenc(std::string("resolve --json --config ") +
                                 kLlama + " --compare-preset llama-3.1-8b");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.text;
  EXPECT_EQ(outcome.json()["difference"]["equal"], true);
}

TEST_F(PosencTest, TablesHoldCosinesAndSines) {
  const std::string cos_path = Path("cos.npy"), sin_path = Path("sin.npy");
  const Outcome outcome = Posenc(
      "table --spec '{\"rotaryDim\":8,\"pairing\":"
      "\"PAIRING_HALF_SPLIT\"}' --rows 33 --start -5 --out-cos " +
      Quoted(cos_path) + " --out-sin " + Quoted(sin_path));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.text;
  const auto cos_file = FileBytes::Read(cos_path);
  const auto sin_file = FileBytes::Read(sin_path);
  ASSERT_TRUE(cos_file.ok() && sin_file.ok());
  const auto cos_table = ParseNpy(cos_file->bytes());
  const auto sin_table = ParseNpy(sin_file->bytes());
  ASSERT_TRUE(cos_table.ok() && sin_table.ok());
  ASSERT_EQ(cos_table->shape, (std::vector<std::int64_t>{33, 4}));
  ASSERT_EQ(sin_table->shape, cos_table->shape);
  for (int row = 0; row < 33; ++row) {
    for (int i = 0; i < 4; ++i) {
      const long double angle = (row - 5) * std::pow(10.0L, -i);
      // Half an ulp, and the frequency's own rounding to double: 2^-53 of the
      // angle.
      const double slack = 0x1p-53 * std::fabs(static_cast<double>(angle));
      const double c = static_cast<double>(std::cos(angle));
      const double s = static_cast<double>(std::sin(angle));
      EXPECT_NEAR(ElementAt(*cos_table, row * 4 + i), c,
                  0.5 * UlpAt(v1::DTYPE_FLOAT32, c) + slack);
      EXPECT_NEAR(ElementAt(*sin_table, row * 4 + i), s,
                  0.5 * UlpAt(v1::DTYPE_FLOAT32, s) + slack);
    }
  }
}

TEST_F(PosencTest, SinusoidalTablesAreInterleaved) {
  const Outcome outcome =
      Posenc("table --json --sinusoidal 4 --order interleaved --rows 3");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.text;
  const Json values = outcome.json()["tensors"]["table"]["values"];
  ASSERT_EQ(values.size(), 12);
  for (int row = 0; row < 3; ++row) {
    for (int i = 0; i < 2; ++i) {
      const double angle = row * std::pow(10.0, -2 * i);
      EXPECT_NEAR(values[row * 4 + 2 * i].get<double>(), std::sin(angle),
                  0x1p-24);
      EXPECT_NEAR(values[row * 4 + 2 * i + 1].get<double>(), std::cos(angle),
                  0x1p-24);
    }
  }
}

TEST_F(PosencTest, Float32AnglesOfAModelAreTheFrameworksProducts) {
  const std::string flags = std::string("table --json --config ") + kLlama +
                            " --start 100003 --rows 1 --angles ";
  const Outcome framework = Posenc(flags + "float32");
  ASSERT_EQ(framework.exit_code, 0) << framework.text;
  const Json values = framework.json()["tensors"]["cos"]["values"];
  const std::vector<long double> w = Llama3Frequencies();
  ASSERT_EQ(values.size(), w.size());
  for (std::size_t i = 0; i < w.size(); ++i) {
    const float angle = 100003.0f * static_cast<float>(w[i]);
    EXPECT_NEAR(values[i].get<double>(), std::cos(static_cast<double>(angle)),
                0x1p-24)
        << i;
  }
}

TEST_F(PosencTest, AppliesAnInterleavedRotationAndKeepsTheRest) {
  // q [1, 3, 2, 6] in float32, of which the first 4 channels rotate.
  std::vector<float> q(36);
  for (int i = 0; i < 36; ++i) q[i] = static_cast<float>(std::sin(i + 1.0));
  const std::string mask = "mask";
  Safetensors file;
  file.metadata = {{"origin", "test"}};
  file.entries = {{"q",
                   "F32",
                   {1, 3, 2, 6},
                   {reinterpret_cast<const char*>(q.data()), q.size() * 4}},
                  {"mask", "U8", {4}, mask}};
  ASSERT_TRUE(WriteSafetensors(Path("in.safetensors"), file).ok());
  const Outcome outcome = Posenc(
      "apply --spec '{\"rotaryDim\":4,\"pairing\":"
      "\"PAIRING_INTERLEAVED\"}' --layout bshd --start 7 --in " +
      Quoted(Path("in.safetensors")) + " --out " +
      Quoted(Path("out.safetensors")));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.text;
  const auto bytes = FileBytes::Read(Path("out.safetensors"));
  ASSERT_TRUE(bytes.ok());
  auto out = ParseSafetensors(bytes->bytes());
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ(out->metadata, file.metadata);
  ASSERT_NE(out->Find("mask"), nullptr);
  EXPECT_EQ(std::string(out->Find("mask")->bytes.begin(),
                        out->Find("mask")->bytes.end()),
            mask);
  ASSERT_NE(out->Find("q"), nullptr);
  const auto rotated = AsTensor(*out->Find("q"));
  ASSERT_TRUE(rotated.ok());
  for (int t = 0; t < 3; ++t) {
    for (int h = 0; h < 2; ++h) {
      const int head = (t * 2 + h) * 6;
      for (int i = 0; i < 2; ++i) {
        const long double angle = (7 + t) * std::pow(10.0L, -2 * i);
        const long double c = std::cos(angle), s = std::sin(angle);
        const float x = q[head + 2 * i], y = q[head + 2 * i + 1];
        // Table, product, sum and result: at most 4 roundings of numbers whose
        // magnitudes |x| + |y| bounds.
        const double bound = 4 * 0x1p-24 * (std::fabs(x) + std::fabs(y));
        EXPECT_NEAR(ElementAt(*rotated, head + 2 * i),
                    static_cast<double>(x * c - y * s), bound);
        EXPECT_NEAR(ElementAt(*rotated, head + 2 * i + 1),
                    static_cast<double>(x * s + y * c), bound);
      }
      for (int i = 4; i < 6; ++i) {
        EXPECT_EQ(ElementAt(*rotated, head + i), q[head + i]);
      }
    }
  }
}

TEST_F(PosencTest, RepeatTellsTheFirstCallsRateFromAWarmOneAndWritesOnce) {
  ASSERT_EQ(Posenc("sample --seed 3 --dtype float32 --q 1,2,1,4 --out " +
                   Quoted(Path("in.safetensors")))
                .exit_code,
            0);
  const std::string apply =
      "apply --spec '{\"pairing\":\"PAIRING_HALF_SPLIT\"}' --layout bshd "
      "--start 5 --in " +
      Quoted(Path("in.safetensors")) + " --out ";
  const Outcome once = Posenc(apply + Quoted(Path("once.safetensors")));
  ASSERT_EQ(once.exit_code, 0) << once.text;
  EXPECT_THAT(once.text, Not(HasSubstr("first call")));
  // A pipe keeps all that is written to it, not just what came last.
  ASSERT_EQ(mkfifo(Path("pipe.safetensors").c_str(), 0600), 0);
  const int pipe =
      open(Path("pipe.safetensors").c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC);
  ASSERT_GE(pipe, 0);

  const Outcome repeated =
      Posenc(apply + Quoted(Path("pipe.safetensors")) + " --repeat 3");

  EXPECT_EQ(repeated.exit_code, 0) << repeated.text;
  EXPECT_THAT(
      repeated.text,
      ContainsRegex("first call \\(page faults\\): [0-9.]+ GB/s; best of "
                    "3 more: [0-9.]+ GB/s\n"));
  EXPECT_THAT(repeated.text, HasSubstr("GB/s counts a tensor's bytes once"));
  std::string written(1 << 16, '\0');
  const ssize_t got = read(pipe, written.data(), written.size());
  close(pipe);
  ASSERT_GE(got, 0);
  written.resize(got);
  const auto expected = FileBytes::Read(Path("once.safetensors"));
  ASSERT_TRUE(expected.ok()) << expected.status();
  EXPECT_EQ(written, AsString(expected->bytes()));
}

TEST_F(PosencTest, RepeatAddsToTheJsonAndRefusesOtherNumbers) {
  ASSERT_EQ(Posenc("sample --dtype float32 --k 1,2,1,4 --out " +
                   Quoted(Path("in.safetensors")))
                .exit_code,
            0);
  const std::string apply =
      "apply --json --spec '{\"pairing\":\"PAIRING_HALF_SPLIT\"}' --layout "
      "bshd --start 5 --in " +
      Quoted(Path("in.safetensors")) + " --out " +
      Quoted(Path("out.safetensors"));

  const Json once = Posenc(apply).json();
  EXPECT_GT(once["gigabytes_per_second"].get<double>(), 0);
  EXPECT_FALSE(once.contains("repeats"));
  const Json twice = Posenc(apply + " --repeat 1").json();
  EXPECT_GT(twice["gigabytes_per_second"].get<double>(), 0);
  EXPECT_EQ(twice["repeats"]["calls"], 1);
  EXPECT_GT(twice["repeats"]["best_seconds"].get<double>(), 0);
  EXPECT_GT(twice["repeats"]["best_gigabytes_per_second"].get<double>(), 0);

  for (const char* bad : {"-1", "1001", "many", "1.5"}) {
    const Outcome refused = Posenc(apply + " --repeat " + bad);
    EXPECT_EQ(refused.exit_code, 2) << bad;
    EXPECT_THAT(refused.text, HasSubstr("--repeat")) << bad;
    EXPECT_THAT(refused.text, HasSubstr(bad));
  }
}

TEST_F(PosencTest, AppliesToNpyWithIds) {
  const std::vector<double> k = {1, 0, 0, 1, 3, 4};  // [T = 3, H = 1, D = 2]
  const std::vector<std::int64_t> ids = {5, 0, -2};
  ASSERT_TRUE(
      WriteNpy(Path("k.npy"), {v1::DTYPE_FLOAT64,
                               {3, 1, 2},
                               {reinterpret_cast<const char*>(k.data()), 48}})
          .ok());
  ASSERT_TRUE(WriteNpy(Path("ids.npy"),
                       {v1::DTYPE_INT64,
                        {3},
                        {reinterpret_cast<const char*>(ids.data()), 24}})
                  .ok());
  const Outcome outcome = Posenc(
      "apply --json --as k --spec '{\"pairing\":\"PAIRING_HALF_SPLIT\"}' "
      "--layout thd --ids " +
      Quoted(Path("ids.npy")) + " --in " + Quoted(Path("k.npy")) + " --out " +
      Quoted(Path("out.npy")));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.text;
  EXPECT_EQ(outcome.json()["bytes"], 48);
  const auto bytes = FileBytes::Read(Path("out.npy"));
  ASSERT_TRUE(bytes.ok());
  const auto out = ParseNpy(bytes->bytes());
  ASSERT_TRUE(out.ok());
  for (int t = 0; t < 3; ++t) {
    const long double c = std::cos(static_cast<long double>(ids[t]));
    const long double s = std::sin(static_cast<long double>(ids[t]));
    const double x = k[2 * t], y = k[2 * t + 1];
    // Cosine and sine within 2 ulp, products, sum: 6 roundings.
    const double bound = 6 * 0x1p-53 * (std::fabs(x) + std::fabs(y));
    EXPECT_NEAR(ElementAt(*out, 2 * t), static_cast<double>(x * c - y * s),
                bound);
    EXPECT_NEAR(ElementAt(*out, 2 * t + 1), static_cast<double>(x * s + y * c),
                bound);
  }
}

TEST_F(PosencTest, CheckFindsEveryWrongElement) {
  const std::string q = Quoted(Path("qk.safetensors"));
  const std::string common =
      "--config " + std::string(kLlama) + " --layout bshd ";
  const auto apply = [&](int start, const std::string& out) {
    return Posenc("apply " + common + "--in " + q + " --start " +
                  std::to_string(start) + " --out " + Quoted(Path(out)));
  };
  ASSERT_EQ(Posenc("sample --seed 7 --q 1,40,4,128 --k 1,40,2,128 --out " + q)
                .exit_code,
            0);
  ASSERT_EQ(apply(0, "a.safetensors").exit_code, 0);
  ASSERT_EQ(apply(1000, "b.safetensors").exit_code, 0);
  const std::string check = "check --json " + common + "--before " + q;
  const std::string a = Quoted(Path("a.safetensors"));
  const std::string b = Quoted(Path("b.safetensors"));

  const Outcome good = Posenc(check + " --after " + a + " --moved " + b);
  ASSERT_EQ(good.exit_code, 0) << good.text;
  EXPECT_EQ(good.json()["rotation"]["q"]["elements"], 40 * 4 * 128);
  EXPECT_EQ(good.json()["scores"]["wrong"], 0);

  // Rotated from elsewhere.
  EXPECT_EQ(Posenc(check + " --after " + b).exit_code, 1);
  // Scores of keys that were not rotated.
  EXPECT_EQ(Posenc(check + " --after " + a + " --moved " + q).exit_code, 1);
  // The last bit of one element, a whole ulp from where it was.
  std::fstream file(Path("a.safetensors"),
                    std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(-2, std::ios::end);
  const char changed = static_cast<char>(file.peek() ^ 1);
  file.seekp(-2, std::ios::end);
  file.put(changed);
  file.close();
  const Outcome bad = Posenc(check + " --after " + a);
  EXPECT_EQ(bad.exit_code, 1);
  EXPECT_THAT(bad.json()["error"]["message"].get<std::string>(),
              HasSubstr("k: 1 of 10240 elements"));
}

TEST_F(PosencTest, SamplesAreSeeded) {
  const auto sample = [&](const std::string& seed, const std::string& name) {
    EXPECT_EQ(Posenc("sample --q 1,2,3,4 --seed " + seed + " --out " +
                     Quoted(Path(name)))
                  .exit_code,
              0);
    const auto bytes = FileBytes::Read(Path(name));
    if (!bytes.ok()) return std::string();
    auto file = ParseSafetensors(bytes->bytes());
    if (!file.ok() || file->Find("q") == nullptr) return std::string();
    return std::string(file->Find("q")->bytes.begin(),
                       file->Find("q")->bytes.end());
  };
  const std::string once = sample("7", "1.safetensors");
  EXPECT_EQ(once.size(), 48);
  EXPECT_EQ(once, sample("7", "2.safetensors"));
  EXPECT_NE(once, sample("8", "3.safetensors"));
}

TEST_F(PosencTest, FailedCallsExitWith1AndSayWhy) {
  const Outcome human = Posenc("resolve --preset no-such-model");
  EXPECT_EQ(human.exit_code, 1);
  EXPECT_THAT(human.text, HasSubstr("posenc: NOT_FOUND: "));
  const Outcome json = Posenc("resolve --json --preset no-such-model");
  EXPECT_EQ(json.exit_code, 1);
  EXPECT_EQ(json.json()["error"]["code"], "NOT_FOUND");
  EXPECT_EQ(json.json()["error"]["reason"], "ERROR_REASON_PRESET_UNKNOWN");
  EXPECT_EQ(json.json()["error"]["field"], "rope.preset");
}

TEST_F(PosencTest, UnreachableServersExitWith1) {
  // A socket that nobody listens on; 1 s bounds the retries.
  const Outcome outcome =
      Posenc("info --json --timeout 1s --server unix:" + Path("nobody"));
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_TRUE(outcome.json().contains("error")) << outcome.text;
}

TEST_F(PosencTest, WrongUsageExitsWith2) {
  for (const char* arguments :
       {"", "no-such-command", "resolve", "resolve --no-such-flag",
        "resolve --preset a --config b", "resolve --spec '{nonsense'",
        "resolve --preset llama-3.1-8b --profile nobody",
        "info --timeout forever",
        "table --sinusoidal 4 --order sideways --rows 1",
        "table --preset llama-3.1-8b --rows 1 --out cos.npy",
        "apply --in a.npy --out b.npy --preset llama-3.1-8b --layout bshd"}) {
    const Outcome outcome = Posenc(std::string(arguments) + " --json");
    EXPECT_EQ(outcome.exit_code, 2) << arguments << "\n" << outcome.text;
    EXPECT_TRUE(outcome.json().contains("error")) << outcome.text;
  }
}

TEST_F(PosencTest, AFlagWithNothingBehindItsSignDoesNotTakeTheNextArgument) {
  const Outcome outcome = Posenc("resolve --preset= --json --head-dim 64");
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.text, HasSubstr("--preset: '--preset=' has no value"));
}

TEST_F(PosencTest, NumbersAreDecimalAndFit) {
  for (const char* number :
       {"010", "-08", "0x10", "9223372036854775808", "1.5", "ten", "-"}) {
    const Outcome outcome = Posenc(
        std::string("table --preset llama-3.1-8b --rows 1 --start ") + number);
    EXPECT_EQ(outcome.exit_code, 2) << number;
    EXPECT_THAT(outcome.text, HasSubstr(std::string("--start: ") + number))
        << number;
  }
  for (const char* flags :
       {"table --rows 1 --sincos-grid 020", "table --rows 1 --timestep 010",
        "table --rows 1 --order sin_cos --sinusoidal 010",
        "positions --to 4 --padded 2,3 --padding-position 010",
        "bias --query-length 2 --alibi 010",
        "bias --query-length 2 --dim 8 --sandwich 010",
        "bias --query-length 2 --bucket-size 0 --deberta 020"}) {
    const Outcome outcome = Posenc(flags);
    EXPECT_EQ(outcome.exit_code, 2) << flags;
    EXPECT_THAT(outcome.text, HasSubstr("begins with a zero")) << flags;
  }
  for (const char* number : {"0", "-7", "+7", "70"}) {
    EXPECT_EQ(
        Posenc(std::string(
                   "table --preset llama-3.1-8b --rows 1 --json --start ") +
               number)
            .exit_code,
        0)
        << number;
  }
}

TEST_F(PosencTest, FilesThatCannotBeReadExitWith3) {
  WriteText("bad.npy", "no array");
  WriteText("bad.safetensors", "no tensors");
  const std::string flags =
      "apply --json --preset llama-3.1-8b --layout bshd --start 0 --in ";
  for (const char* name : {"bad.npy", "missing.npy", "bad.safetensors"}) {
    const std::string extension = std::filesystem::path(name).extension();
    const Outcome outcome = Posenc(flags + Quoted(Path(name)) + " --out " +
                                   Quoted(Path("out" + extension)));
    EXPECT_EQ(outcome.exit_code, 3) << outcome.text;
    EXPECT_THAT(outcome.json()["error"]["message"].get<std::string>(),
                HasSubstr(name));
  }
  EXPECT_EQ(
      Posenc("resolve --config " + Quoted(Path("missing.json"))).exit_code, 3);
  WriteText("sparse.json", "");
  std::filesystem::resize_file(Path("sparse.json"), std::uintmax_t{100} << 30);
  const Outcome sparse =
      Posenc("resolve --config " + Quoted(Path("sparse.json")));
  EXPECT_EQ(sparse.exit_code, 3);
  EXPECT_THAT(sparse.text,
              HasSubstr("107374182400 bytes; at most 67108864 are read"));
}

TEST_F(PosencTest, Bfloat16TablesAreRefusedForNpyBeforeTheWork) {
  const Outcome outcome = Posenc(
      "table --preset llama-3.1-8b --rows 4 --dtype bfloat16 --out-cos " +
      Quoted(Path("cos.npy")));
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_THAT(outcome.text, HasSubstr(".safetensors"));
  EXPECT_FALSE(std::filesystem::exists(Path("cos.npy")));
}

TEST_F(PosencTest, HelpSaysExitCodes) {
  const Outcome outcome = Posenc("--help");
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.text, HasSubstr("Exit codes: 0"));
}

}  // namespace
}  // namespace posenc::cli
