// `posenc bias` and `posenc scores`, with the service inside their process.
// Expected numbers are the formulas of posenc.v1, written out here.

#include <cmath>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fixtures/commands.h"

namespace posenc::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class RelativeTest : public CommandsTest {};

TEST_F(RelativeTest, BiasPrintsACornerAndWritesTheWholeTileByTile) {
  const std::string alibi = "bias --alibi 2 --query-start 2 --query-length 3 ";
  const Outcome human = Posenc(alibi);
  ASSERT_EQ(human.exit_code, 0) << human.text;
  EXPECT_THAT(human.text, HasSubstr("bias  float32 [2, 3, 5]"));
  EXPECT_THAT(human.text, HasSubstr("head 1 of 2"));
  EXPECT_THAT(human.text, HasSubstr("-0.062500000"));

  for (const char* name : {"bias.npy", "bias.safetensors"}) {
    const Outcome outcome = Posenc(
        alibi + "--json --query-tile 2 --key-tile 2 --out " + Quote(name));
    ASSERT_EQ(outcome.exit_code, 0) << outcome.text;
    std::vector<std::int64_t> shape;
    const std::string tensor = name[5] == 'n' ? "" : "bias";
    const std::vector<double> values = ReadElements(Path(name), tensor, &shape);
    ASSERT_THAT(shape, ElementsAre(2, 3, 5));
    for (int n = 0; n < 30; ++n) {
      const double slope = n < 15 ? 0x1p-4 : 0x1p-8;
      EXPECT_EQ(values[n], -slope * std::abs(2 + n / 5 % 3 - n % 5)) << n;
    }
  }
}

TEST_F(RelativeTest, BiasTakesEveryKind) {
  const auto values = [&](const std::string& flags) {
    const Outcome outcome = Posenc("bias --json --dtype float64 " + flags);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
    return outcome.json()["bias"]["values"];
  };
  const auto indices = [&](const std::string& flags) {
    const Outcome outcome = Posenc("bias --json " + flags);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
    EXPECT_EQ(outcome.json()["bias"]["dtype"], "int32");
    return outcome.json()["bias"]["values"].get<std::vector<int>>();
  };
  const std::string three = "--query-start 2 --query-length 1 ";
  EXPECT_EQ(values("--alibi 2 --slopes 0.5,2 --causal --query-length 2"),
            Json({0, "-Infinity", -0.5, 0, 0, "-Infinity", -2, 0}));
  EXPECT_THAT(indices(three + "--t5"), ElementsAre(2, 1, 0));
  WriteNpyFile<float>("w.npy", v1::DTYPE_FLOAT32, {2, 1}, {10, 20});
  EXPECT_EQ(values(three + "--t5 --num-buckets 2 --max-distance 8 --weights " +
                   Quote("w.npy")),
            Json({20.0, 20.0, 10.0}));
  EXPECT_EQ(values(three + "--kerple power --r1 0.5 --r2 1"),
            Json({-1.0, -0.5, 0.0}));
  // c = 1, threshold 1: mlp(psi(i - j) / psi(max(i, 1))), mlp(x) = 3 x + 1.
  WriteSafetensorsFile("fire.safetensors", {{"w1", {1, 1}, {1}},
                                            {"b1", {1}, {0}},
                                            {"w2", {1, 1}, {3}},
                                            {"b2", {1}, {1}}});
  const Json fire =
      values(three + "--c 1 --threshold 1 --fire " + Quote("fire.safetensors"));
  ASSERT_EQ(fire.size(), 3u);
  for (int j = 0; j < 3; ++j) {
    EXPECT_NEAR(fire[j].get<double>(),
                3 * std::log(2.0 - j + 1) / std::log(3.0) + 1, 16 * 0x1p-53);
  }
  // One pair of frequency 1e-4, one head: (cos(d w) - 1) / 8.
  const Json sandwich = values(three + "--sandwich 1 --dim 2");
  EXPECT_NEAR(sandwich[0].get<double>(), (std::cos(2e-4) - 1) / 8, 0x1p-53);
  WriteSafetensorsFile("tupe.safetensors",
                       {{"position_queries", {1, 3, 1}, {1, 2, 3}},
                        {"position_keys", {1, 3, 1}, {4, 5, 6}}});
  EXPECT_EQ(values(three + "--scale 0.5 --untied-positions " +
                   Quote("tupe.safetensors")),
            Json({6.0, 7.5, 9.0}));
  EXPECT_THAT(indices(three + "--clip 1,1"), ElementsAre(0, 0, 1));
  EXPECT_THAT(indices(three + "--deberta 4"), ElementsAre(6, 5, 4));
  // Cell 2 of a 2 x 2 window is (1, 0): rows differ by 1, 1, 0.
  EXPECT_THAT(indices(three + "--key-length 3 --grid 2x2"),
              ElementsAre(7, 6, 4));
}

TEST_F(RelativeTest, BiasRefusesWhatItCannotDo) {
  ExpectUsage("bias --query-length 1", "--alibi");
  ExpectUsage("bias --alibi 2", "--query-length");
  ExpectUsage("bias --alibi 2 --t5 --query-length 1", "");
  ExpectUsage("bias --clip 3 --query-length 1", "16,16");
  ExpectUsage("bias --alibi 8 --query-length 4096", "--out");
  ExpectUsage("bias --alibi 8 --query-length 4 --out bias.txt", "--out");
  ExpectFileError(
      "bias --fire missing.safetensors --c 1 --threshold 1 "
      "--query-length 1",
      "missing.safetensors");
  ExpectFileError("bias --alibi 2 --query-length 4 --dtype bfloat16 --out " +
                      Quote("bias.npy"),
                  ".safetensors");
  ExpectServerError(
      "bias --alibi 0 --query-length 4 --out " + Quote("bias.npy"),
      "bias.alibi.heads");
  EXPECT_TRUE(std::filesystem::is_empty(Path("")));
}

TEST_F(RelativeTest, ScoresReadTheirTables) {
  WriteSafetensorsFile("qk.safetensors", {{"q", {1, 1, 2, 2}, {1, 2, 3, 4}},
                                          {"k", {1, 1, 2, 2}, {5, 6, 7, 8}}});
  const auto scores = [&](const std::string& flags) {
    const Outcome outcome =
        Posenc("scores --json --in " + Quote("qk.safetensors") + " " + flags);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
    return outcome.json()["scores"]["values"];
  };
  // Rows of distances -1, 0, 1; then of 0, 1 alone.
  WriteNpyFile<float>("a.npy", v1::DTYPE_FLOAT32, {3, 2}, {1, 0, 0, 0, 0, 1});
  EXPECT_EQ(scores("--shaw " + Quote("a.npy")), Json({17, 25, 42, 53}));
  EXPECT_EQ(scores("--left 0 --shaw " + Quote("a.npy")),
            Json({17 + 1, 23 + 0, 39 + 3, 53 + 3}));
  // u = v = 0; r of distances 1, 0.
  WriteSafetensorsFile("xl.safetensors", {{"u", {1, 2}, {0, 0}},
                                          {"v", {1, 2}, {0, 0}},
                                          {"r", {1, 2, 2}, {1, 0, 0, 1}}});
  EXPECT_EQ(scores("--transformer-xl " + Quote("xl.safetensors")),
            Json({17 + 2, "-Infinity", 39 + 3, 53 + 4}));
  // span 2: x = i - j + 2 for distances -1, 0, 1.
  WriteNpyFile<float>("keys.npy", v1::DTYPE_FLOAT32, {1, 4, 2},
                      {9, 9, 1, 0, 0, 1, 0, 0});
  EXPECT_EQ(scores("--deberta 2 --position-keys " + Quote("keys.npy")),
            Json({17 + 2, 23 + 1, 39 + 0, 53 + 4}));

  const Outcome human =
      Posenc("scores --in " + Quote("qk.safetensors") + " --shaw " +
             Quote("a.npy") + " --out " + Quote("scores.npy"));
  ASSERT_EQ(human.exit_code, 0) << human.text;
  EXPECT_THAT(human.text, HasSubstr("scores  float32 [1, 1, 2, 2]"));
  EXPECT_THAT(ReadElements(Path("scores.npy"), "", nullptr),
              ElementsAre(17, 25, 42, 53));
}

TEST_F(RelativeTest, ScoresRefuseWhatTheyCannotDo) {
  WriteSafetensorsFile("q.safetensors", {{"q", {1, 1, 1, 2}, {1, 2}},
                                         {"k", {1, 1, 1, 3}, {1, 2, 3}}});
  WriteNpyFile<float>("a.npy", v1::DTYPE_FLOAT32, {1, 2}, {0, 0});
  const std::string in = "scores --in " + Quote("q.safetensors") + " ";
  ExpectUsage(in, "--shaw");
  ExpectUsage(in + "--transformer-xl xl.npy", ".safetensors");
  ExpectUsage("scores --in q.npy --shaw a.npy", "--in");
  ExpectFileError(in + "--shaw " + Quote("missing.npy"), "missing.npy");
  ExpectFileError(in + "--k keys --shaw " + Quote("a.npy"), "keys");
  ExpectFileError(in + "--transformer-xl " + Quote("q.safetensors"),
                  "holds no tensor \\\"u\\\"");
  ExpectServerError(in + "--shaw " + Quote("a.npy"), "k.shape");
}

}  // namespace
}  // namespace posenc::cli
