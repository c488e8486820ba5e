// The `posenc` command itself, with the service inside its process.

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>
#include <vector>

#include "client/tools/check/element.h"
#include "client/tools/files/file.h"
#include "client/tools/files/safetensors.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fixtures/cli.h"

namespace posenc::cli {
namespace {

using check::UlpAt;

constexpr long double kPi = std::numbers::pi_v<long double>;

const char kLlama[] = "'" POSENC_TEST_DATA "/configs/llama-3.1-8b.json'";

// Llama 3.1's frequencies, as in its paper's code.
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

TEST_F(PosencTest, TablesHoldCosinesAndSines) {
  const std::string cos_path = Path("cos.npy"), sin_path = Path("sin.npy");
  const Outcome outcome = Posenc(
      "table --spec '{\"rotaryDim\":8,\"pairing\":"
      "\"PAIRING_HALF_SPLIT\"}' --rows 33 --start -5 --out-cos " +
      Quoted(cos_path) + " --out-sin " + Quoted(sin_path));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.text;
  std::vector<std::int64_t> shape;
  const std::vector<double> cos_table = ReadElements(cos_path, "", &shape);
  ASSERT_EQ(shape, (std::vector<std::int64_t>{33, 4}));
  const std::vector<double> sin_table = ReadElements(sin_path, "", &shape);
  ASSERT_EQ(shape, (std::vector<std::int64_t>{33, 4}));
  for (int row = 0; row < 33; ++row) {
    for (int i = 0; i < 4; ++i) {
      const long double angle = (row - 5) * std::pow(10.0L, -i);
      // The bound is half an ulp, and the frequency's own rounding to double:
      // 2^-53 of the angle.
      const double slack = 0x1p-53 * std::fabs(static_cast<double>(angle));
      const double c = static_cast<double>(std::cos(angle));
      const double s = static_cast<double>(std::sin(angle));
      EXPECT_NEAR(cos_table[row * 4 + i], c,
                  0.5 * UlpAt(v1::DTYPE_FLOAT32, c) + slack);
      EXPECT_NEAR(sin_table[row * 4 + i], s,
                  0.5 * UlpAt(v1::DTYPE_FLOAT32, s) + slack);
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

TEST_F(PosencTest, BytesOfBlocksStayU8) {
  // A block of q8_0 with the scale 1.
  std::string block(34, '\0');
  block[1] = 0x3c;
  block[2] = 127;
  Safetensors file;
  file.entries = {{"k", "U8", {1, 1, 1, 34}, block}};
  ASSERT_TRUE(WriteSafetensors(Path("in.safetensors"), file).ok());
  const std::string command =
      "reposition --spec '{\"pairing\":\"PAIRING_HALF_SPLIT\"}' --layout bshd "
      "--shift 0 --saturation finite --in " +
      Quoted(Path("in.safetensors")) + " --out " +
      Quoted(Path("out.safetensors"));
  const Outcome refused = Posenc(command);
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.text, testing::HasSubstr("give --block-format"));
  const Outcome outcome = Posenc(command + " --block-format q8_0");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.text;
  const auto bytes = FileBytes::Read(Path("out.safetensors"));
  ASSERT_TRUE(bytes.ok());
  auto out = ParseSafetensors(bytes->bytes());
  ASSERT_TRUE(out.ok()) << out.status();
  ASSERT_NE(out->Find("k"), nullptr);
  EXPECT_EQ(out->Find("k")->dtype, "U8");
  EXPECT_EQ(
      std::string(out->Find("k")->bytes.begin(), out->Find("k")->bytes.end()),
      block);
}

TEST_F(PosencTest, AppliesAnInterleavedRotationAndKeepsTheRest) {
  // q is [1, 3, 2, 6] of float32, and the first 4 channels of each head rotate.
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
        // Table, product, sum and result are rounded: at most 4 roundings of
        // numbers up to |x| + |y|.
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

}  // namespace
}  // namespace posenc::cli
