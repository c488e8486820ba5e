// The commands beyond the main job, each with the service inside its process.
// Expected numbers are the formulas of posenc.v1, written out here.

#include "tests/fixtures/commands.h"

#include <cmath>
#include <cstring>
#include <fstream>
#include <numbers>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace posenc::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// One pair of frequency 1, heads of two channels.
const char kPair[] =
    " --layout bshd --spec '{\"rotaryDim\":2,\"pairing\":"
    "\"PAIRING_INTERLEAVED\"}' ";

TEST_F(CommandsTest, RepositionTurnsEveryKeyOfTheFileByTheShift) {
  WriteSafetensorsFile("in.safetensors",
                       {{"layers.0.k", {1, 1, 1, 2}, {1, 2}},
                        {"layers.1.key", {1, 1, 1, 2}, {3, 4}},
                        {"v", {1}, {5}}});
  const Outcome outcome =
      Posenc("reposition --json --shift -3 --in " + Quote("in.safetensors") +
             " --out " + Quote("out.safetensors") + kPair);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.text;
  EXPECT_EQ(outcome.json()["tensors"].size(), 2u);
  const double c = std::cos(-3.0), s = std::sin(-3.0);
  // One rotation: 10 float32 roundings of the pair's length.
  const auto expect = [&](const char* name, double x, double y) {
    const std::vector<double> values =
        ReadElements(Path("out.safetensors"), name, nullptr);
    ASSERT_EQ(values.size(), 2u);
    const double bound = 10 * 0x1p-24 * std::hypot(x, y);
    EXPECT_NEAR(values[0], x * c - y * s, bound);
    EXPECT_NEAR(values[1], x * s + y * c, bound);
  };
  expect("layers.0.k", 1, 2);
  expect("layers.1.key", 3, 4);
  EXPECT_THAT(ReadElements(Path("out.safetensors"), "v", nullptr),
              ElementsAre(5));
}

TEST_F(CommandsTest, RepositionTakesOldAndNewPositionsAndEncodings) {
  WriteNpyFile<double>("k.npy", v1::DTYPE_FLOAT64, {1, 2, 1, 2}, {1, 0, 1, 0});
  WriteNpyFile<std::int64_t>("ids.npy", v1::DTYPE_INT64, {2}, {4, 9});
  const std::string files = "reposition --in " + Quote("k.npy") + " --out " +
                            Quote("out.npy") + kPair;
  const Outcome outcome =
      Posenc(files + "--start 2 --new-ids " + Quote("ids.npy") +
             " --new-spec '{\"rotaryDim\":2,\"pairing\":"
             "\"PAIRING_INTERLEAVED\",\"linear\":{\"factor\":2}}'");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.text;
  const std::vector<double> values = ReadElements(Path("out.npy"), "", nullptr);
  // Positions 2 and 3 at frequency 1 become 4 and 9 at frequency 1/2.
  const double angles[] = {4 / 2.0 - 2, 9 / 2.0 - 3};
  for (int t = 0; t < 2; ++t) {
    EXPECT_NEAR(values[2 * t], std::cos(angles[t]), 10 * 0x1p-53);
    EXPECT_NEAR(values[2 * t + 1], std::sin(angles[t]), 10 * 0x1p-53);
  }
}

TEST_F(CommandsTest, RepositionRefusesWhatItCannotDo) {
  WriteNpyFile<float>("k.npy", v1::DTYPE_FLOAT32, {1, 1, 1, 4}, {1, 2, 3, 4});
  const std::string files = "reposition --in " + Quote("k.npy") + " --out " +
                            Quote("out.npy") + kPair;
  ExpectUsage(files, "--shift");
  ExpectUsage(files + "--shift 1 --new-start 3", "--shift");
  ExpectUsage(files + "--shift 1 --tensor k", "--tensor");
  ExpectUsage(files + "--new-start 1 --new-ids x.npy", "--new-");
  ExpectUsage("reposition --shift 1 --layout bshd --in " + Quote("k.npy") +
                  " --out " + Quote("out.npy"),
              "--preset");
  ExpectFileError(
      "reposition --shift 1 --in missing.npy --out x.npy" + std::string(kPair),
      "missing.npy");
  WriteSafetensorsFile("other.safetensors", {{"v", {1}, {5}}});
  ExpectFileError("reposition --shift 1 --in " + Quote("other.safetensors") +
                      " --out " + Quote("out.safetensors") + kPair,
                  "--tensor");
  const std::string fewer =
      "--new-spec '{\"rotaryDim\":4,\"pairing\":\"PAIRING_INTERLEAVED\"}' ";
  ExpectServerError(files + "--shift 1 --start 0 " + fewer,
                    "ERROR_REASON_NOT_REPOSITIONABLE");
  EXPECT_FALSE(std::filesystem::exists(Path("out.npy")));
}

TEST_F(CommandsTest, CheckAllowsForTheRoundingsOfRepositions) {
  const std::string model = " --preset llama-3.1-8b --layout bshd ";
  ASSERT_EQ(Posenc("sample --dtype float16 --k 1,64,2,128 --out " +
                   Quote("k.safetensors"))
                .exit_code,
            0);
  ASSERT_EQ(Posenc("apply --start 0 --in " + Quote("k.safetensors") +
                   " --out " + Quote("0.safetensors") + model)
                .exit_code,
            0);
  ASSERT_EQ(Posenc("reposition --shift 1000 --in " + Quote("0.safetensors") +
                   " --out " + Quote("1000.safetensors") + model)
                .exit_code,
            0);
  const std::string check = "check --json --before " + Quote("k.safetensors") +
                            " --after " + Quote("1000.safetensors") + model;
  const Outcome moved = Posenc(check + "--start 1000 --repositions 1");
  EXPECT_EQ(moved.exit_code, 0) << moved.text;
  // Two roundings are more than one rotation may have; and it is no other
  // position's rotation.
  EXPECT_EQ(Posenc(check + "--start 1000").exit_code, 1);
  EXPECT_EQ(Posenc(check + "--start 999 --repositions 1").exit_code, 1);
}

TEST_F(CommandsTest, Float8KeysAreSampledRotatedMovedAndChecked) {
  const std::string model = " --preset llama-3.1-8b --layout bshd ";
  for (const std::string dtype : {"float8_e4m3fn", "float8_e5m2"}) {
    ASSERT_EQ(Posenc("sample --dtype " + dtype + " --k 1,64,2,128 --out " +
                     Quote("k.safetensors"))
                  .exit_code,
              0);
    const std::string apply = "apply --start 7 --in " + Quote("k.safetensors") +
                              " --out " + Quote("7.safetensors") + model;
    ExpectServerError(apply, "ERROR_REASON_FIELD_REQUIRED");
    ExpectUsage(apply + "--saturation always", "--saturation");
    ASSERT_EQ(Posenc(apply + "--saturation finite").exit_code, 0);
    const std::string check =
        "check --json --before " + Quote("k.safetensors") + model + "--after ";
    const Outcome rotated =
        Posenc(check + Quote("7.safetensors") + " --start 7");
    EXPECT_EQ(rotated.exit_code, 0) << rotated.text;
    EXPECT_EQ(Posenc(check + Quote("7.safetensors") + " --start 8").exit_code,
              1);
    ASSERT_EQ(Posenc("reposition --shift 1000 --saturation none --in " +
                     Quote("7.safetensors") + " --out " +
                     Quote("1007.safetensors") + model)
                  .exit_code,
              0);
    const Outcome moved = Posenc(check + Quote("1007.safetensors") +
                                 " --start 1007 --repositions 1");
    EXPECT_EQ(moved.exit_code, 0) << moved.text;
  }
}

TEST_F(CommandsTest, AddAddsMultipliesAndConcatenatesRows) {
  WriteNpyFile<float>("table.npy", v1::DTYPE_FLOAT32, {3, 2},
                      {1, 2, 3, 4, 5, 6});
  WriteSafetensorsFile("x.safetensors", {{"x", {2, 2}, {10, 20, 30, 40}}});
  const std::string flags = "add --learned " + Quote("table.npy") +
                            " --start 1 --in " + Quote("x.safetensors") +
                            " --out " + Quote("y.safetensors") + " ";
  const auto run = [&](const std::string& more) {
    const Outcome outcome = Posenc(flags + more);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
    return ReadElements(Path("y.safetensors"), "x", nullptr);
  };
  EXPECT_THAT(run(""), ElementsAre(13, 24, 35, 46));
  EXPECT_THAT(run("--x-scale 2"), ElementsAre(23, 44, 65, 86));
  EXPECT_THAT(run("--combination multiply"), ElementsAre(40, 100, 180, 280));
  EXPECT_THAT(run("--combination concatenate"),
              ElementsAre(10, 20, 3, 4, 30, 40, 5, 6));
}

TEST_F(CommandsTest, AddRefusesWhatItCannotDo) {
  WriteNpyFile<float>("x.npy", v1::DTYPE_FLOAT32, {1, 2}, {1, 2});
  const std::string files =
      "add --in " + Quote("x.npy") + " --out " + Quote("y.npy") + " ";
  ExpectUsage(files + "--start 0", "--sinusoidal");
  ExpectUsage(files + "--sinusoidal 2 --order sin_cos", "positions");
  ExpectUsage(files + "--sinusoidal 2 --start 0", "--order");
  ExpectUsage(files + "--timestep 2 --start 0 --base 7", "--base");
  ExpectFileError(files + "--learned " + Quote("missing.npy") + " --start 0",
                  "missing.npy");
  ExpectServerError(files + "--sinusoidal 4 --order sin_cos --start 0",
                    "x.shape");
}

TEST_F(CommandsTest, TablesHoldEveryAbsoluteEncoding) {
  const auto values = [&](const std::string& flags) {
    const Outcome outcome = Posenc("table --json --dtype float64 " + flags);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
    return outcome.json()["tensors"]["table"]["values"]
        .get<std::vector<double>>();
  };
  const auto near = [](double value) {
    return testing::DoubleNear(value, 4 * 0x1p-53);  // exact sines in float64
  };
  WriteNpyFile<double>("table.npy", v1::DTYPE_FLOAT64, {2, 1}, {7, 8});
  EXPECT_THAT(values("--rows 2 --learned " + Quote("table.npy")),
              ElementsAre(7, 8));
  // u = (row - alpha row_0) / (1 - alpha) = 7, 25/3; position 2 is (1, 0).
  EXPECT_THAT(
      values("--rows 1 --start 2 --hierarchical-alpha 0.25 --learned " +
             Quote("table.npy")),
      ElementsAre(testing::DoubleNear(0.25 * 25 / 3 + 0.75 * 7, 8 * 0x1p-50)));
  EXPECT_THAT(values("--rows 1 --start 3 --timestep 2 --cos-first --scale 2"),
              ElementsAre(near(std::cos(6.0)), near(std::sin(6.0))));
  EXPECT_THAT(values("--sincos-grid 4 --extents 1x2 --leading-zero-rows 1"),
              ElementsAre(0, 0, 0, 0, 0, 1, 0, 1, 0, 1, near(std::sin(1.0)),
                          near(std::cos(1.0))));
  WriteNpyFile<double>("b.npy", v1::DTYPE_FLOAT64, {1, 1}, {0.125});
  EXPECT_THAT(values("--rows 1 --start 1 --fourier-features " + Quote("b.npy")),
              ElementsAre(near(std::numbers::sqrt2 / 2),
                          near(std::numbers::sqrt2 / 2)));
}

TEST_F(CommandsTest, TableRefusesMixedAndMissingEncodings) {
  ExpectUsage("table --rows 1", "--preset");
  ExpectUsage("table --rows 1 --timestep 4 --preset llama-3.1-8b", "excludes");
  ExpectUsage("table --rows 1 --timestep 4 --sincos-grid 4 --extents 2x2", "");
  ExpectUsage("table --sincos-grid 4 --extents 2,2", "2x4x4");
  ExpectServerError("table --sincos-grid 6 --extents 2x2", "sincos_grid");
}

TEST_F(CommandsTest, PositionsFollowEveryScheme) {
  const auto ids = [&](const std::string& flags) {
    const Outcome outcome = Posenc("positions --json " + flags);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
    return outcome.json()["ids"]["values"];
  };
  EXPECT_EQ(ids("--packed 5,3"), Json({0, 1, 2, 3, 4, 0, 1, 2}));
  EXPECT_EQ(ids("--padded 2,3 --to 4"), Json({0, 1, 0, 0, 0, 1, 2, 0}));
  EXPECT_EQ(ids("--padded 2,3 --to 4 --left --padding-position -1"),
            Json({-1, -1, 0, 1, -1, 0, 1, 2}));
  EXPECT_EQ(ids("--context-parallel 8 --size 2 --rank 1"), Json({2, 3, 4, 5}));
  EXPECT_EQ(ids("--grid 2x2"), Json({0, 0, 1, 1, 0, 1, 0, 1}));
  EXPECT_EQ(ids("--grid 2x2 --offsets 0.5,0.25 --steps 1,0.5"),
            Json({0.5, 0.5, 1.5, 1.5, 0.25, 0.75, 0.25, 0.75}));
  EXPECT_EQ(ids("--sinks 2 --window 3 --length 9"), Json({0, 1, 6, 7, 8}));
  // Two tokens, a 1 x 2 x 2 grid after merging, one token.
  const std::string mixed =
      "positions --multimodal text:2,image:1x4x4/2,text:1";
  const Outcome json = Posenc(mixed + " --json");
  ASSERT_EQ(json.exit_code, 0) << json.text;
  EXPECT_EQ(json.json()["ids"]["values"], Json({0, 1, 2, 2, 2, 2, 4, 0, 1, 2, 2,
                                                3, 3, 4, 0, 1, 2, 3, 2, 3, 4}));
  EXPECT_EQ(json.json()["next_position"], 5);
  EXPECT_EQ(json.json()["delta"], 5 - 7);
  const Outcome human = Posenc(mixed);
  EXPECT_THAT(human.text, HasSubstr("ids  int32 [3, 7]"));
  EXPECT_THAT(human.text, HasSubstr("next position"));
}

TEST_F(CommandsTest, PositionsOfPatchesAreTheTowers) {
  const std::string tower = Quote("tower.json");
  std::ofstream(Path("tower.json")) << R"({"model_type":"qwen2_vl_vision"})";
  const auto ids = [&](const std::string& flags) {
    const Outcome outcome =
        Posenc("positions --json --tower-config " + tower + " " + flags);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
    return outcome.json()["ids"]["values"];
  };
  EXPECT_EQ(ids("--vision 2x4"), Json({0, 0, 1, 1, 0, 0, 1, 1,  //
                                       0, 1, 0, 1, 2, 3, 2, 3}));
  EXPECT_EQ(ids("--vision 2x1x2,1x1 --tower-merge 1"),
            Json({0, 0, 0, 0, 0, 0, 1, 0, 1, 0}));
}

TEST_F(CommandsTest, ResolveReadsThePartThatIsAskedFor) {
  std::ofstream(Path("whole.json"))
      << R"({"model_type":"qwen2_vl","hidden_size":1024,)"
         R"("num_attention_heads":8,"vision_config":{"embed_dim":1280}})";
  const std::string resolve = "resolve --json --config " + Quote("whole.json");
  EXPECT_EQ(Posenc(resolve).json()["head_dim"], 128);
  EXPECT_EQ(Posenc(resolve + " --part vision").json()["head_dim"], 80);
  ExpectUsage(resolve + " --part picture", "text, vision");
  ExpectServerError(resolve + " --part audio", "part");
}

TEST_F(CommandsTest, PositionsAreWrittenForOtherCommandsToRead) {
  ASSERT_EQ(
      Posenc("positions --packed 2,1 --out " + Quote("ids.npy")).exit_code, 0);
  EXPECT_THAT(ReadElements(Path("ids.npy"), "", nullptr), ElementsAre(0, 1, 0));
  const Outcome table = Posenc(
      "table --json --sinusoidal 2 --order cos_sin --ids " + Quote("ids.npy"));
  ASSERT_EQ(table.exit_code, 0) << table.text;
  EXPECT_EQ(table.json()["tensors"]["table"]["values"][4], 1);
}

TEST_F(CommandsTest, PositionsRefuseWhatTheyCannotDo) {
  ExpectUsage("positions", "--packed");
  ExpectUsage("positions --padded 3", "--to");
  ExpectUsage("positions --packed 3,x", "no integer");
  ExpectUsage("positions --packed 3 --grid 2x2", "");
  ExpectUsage("positions --grid 2y2", "2x4x4");
  ExpectUsage("positions --multimodal text:2,image:4x4", "image:TIME");
  ExpectUsage("positions --packed 3 --out ids.txt", "--out");
  ExpectUsage("positions --vision 4x4", "--tower-preset");
  ExpectUsage("positions --vision 4 --tower-preset llama-3.1-8b",
              "HEIGHTxWIDTH");
  ExpectServerError("positions --context-parallel 6 --size 2 --rank 0",
                    "context_parallel.lengths");
}

TEST_F(CommandsTest, ConvertReordersTheRowsOfQueriesAndKeys) {
  // Heads of four rows: two of queries, one of keys.
  WriteSafetensorsFile(
      "in.safetensors",
      {{"l.self_attn.q_proj.weight", {8, 1}, {0, 1, 2, 3, 4, 5, 6, 7}},
       {"l.self_attn.k_proj.weight", {4, 1}, {0, 1, 2, 3}},
       {"l.self_attn.k_proj.bias", {4}, {0, 1, 2, 3}},
       {"l.self_attn.v_proj.weight", {4, 1}, {0, 1, 2, 3}}});
  const auto convert = [&](const std::string& from, const std::string& to,
                           const std::string& in, const std::string& out) {
    return Posenc("convert --old-pairing " + from + " --new-pairing " + to +
                  " --heads 2 --kv-heads 1 --in " + Quote(in) + " --out " +
                  Quote(out));
  };
  const Outcome there = convert("interleaved", "half_split", "in.safetensors",
                                "half.safetensors");
  ASSERT_EQ(there.exit_code, 0) << there.text;
  EXPECT_THAT(there.text, HasSubstr("converted"));
  const auto read = [&](const char* file, const std::string& name) {
    return ReadElements(Path(file), "l.self_attn." + name, nullptr);
  };
  EXPECT_THAT(read("half.safetensors", "q_proj.weight"),
              ElementsAre(0, 2, 1, 3, 4, 6, 5, 7));
  EXPECT_THAT(read("half.safetensors", "k_proj.weight"),
              ElementsAre(0, 2, 1, 3));
  EXPECT_THAT(read("half.safetensors", "k_proj.bias"), ElementsAre(0, 2, 1, 3));
  EXPECT_THAT(read("half.safetensors", "v_proj.weight"),
              ElementsAre(0, 1, 2, 3));
  ASSERT_EQ(convert("half_split", "interleaved", "half.safetensors",
                    "back.safetensors")
                .exit_code,
            0);
  EXPECT_THAT(read("back.safetensors", "q_proj.weight"),
              ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
}

TEST_F(CommandsTest, ConvertRefusesWhatItCannotDo) {
  WriteSafetensorsFile("in.safetensors",
                       {{"q_proj.weight", {8, 1}, std::vector<float>(8)},
                        {"k_proj.weight", {4, 1}, std::vector<float>(4)}});
  const std::string files = "convert --in " + Quote("in.safetensors") +
                            " --out " + Quote("out.safetensors") +
                            " --old-pairing interleaved --new-pairing ";
  ExpectUsage(files + "half_split", "--heads");
  ExpectUsage(files + "sideways --heads 2", "half_split, interleaved");
  // Legal rows, of heads that are not equally wide.
  ExpectUsage(files + "half_split --heads 2", "--kv-heads");
  ExpectFileError(files + "half_split --heads 2 --tensor '*wq*'", "*wq*");
  ExpectServerError(files + "half_split --heads 3 --tensor 'q*'",
                    "q_proj.weight");
  EXPECT_FALSE(std::filesystem::exists(Path("out.safetensors")));
}

TEST_F(CommandsTest, AnalyzeTellsAndPlotsTheDecay) {
  const std::string spec =
      "analyze --spec '{\"rotaryDim\":4,\"ropeTheta\":100,\"pairing\":"
      "\"PAIRING_HALF_SPLIT\"}' --max-distance 6 --distance-step 2 "
      "--trained-length 100 ";
  const Outcome json = Posenc(spec + "--json");
  ASSERT_EQ(json.exit_code, 0) << json.text;
  const Json analysis = json.json();
  EXPECT_NEAR(analysis["wavelengths"][1].get<double>(), 20 * std::numbers::pi,
              1e-12);
  ASSERT_EQ(analysis["decay"].size(), 4u);
  // Mean of |1| and |1 + e^(i s (w_1 - w_0))|, and 1.5 at distance 0.
  EXPECT_NEAR(analysis["decay"][0].get<double>(), 1.5, 1e-15);
  EXPECT_NEAR(analysis["decay"][1].get<double>(),
              (1 + 2 * std::fabs(std::cos(0.9))) / 2, 1e-14);
  EXPECT_EQ(analysis["pairs_within_trained_length"], 2);
  const Outcome human = Posenc(spec);
  ASSERT_EQ(human.exit_code, 0) << human.text;
  for (const char* part : {"wavelength", "2 of 2 pairs", "(100)", "similarity",
                           "1.5 |*", "+----"}) {
    EXPECT_THAT(human.text, HasSubstr(part));
  }
}

TEST_F(CommandsTest, AnalyzeRefusesWhatItCannotDo) {
  ExpectUsage("analyze", "--preset");
  ExpectFileError("analyze --config missing.json", "missing.json");
  ExpectServerError("analyze --preset llama-3.1-8b --max-distance 100000",
                    "distance_step");
}

TEST_F(CommandsTest, ATensorOfSeveralIsNamed) {
  WriteSafetensorsFile("w.safetensors",
                       {{"a", {2, 1}, {1, 2}}, {"b", {2, 1}, {3, 4}}});
  const std::string flags = "table --json --rows 2 --learned ";
  const Outcome named = Posenc(flags + Quote("w.safetensors:b"));
  ASSERT_EQ(named.exit_code, 0) << named.text;
  EXPECT_EQ(named.json()["tensors"]["table"]["values"], Json({3, 4}));
  ExpectFileError(flags + Quote("w.safetensors"), "it has a, b");
  ExpectFileError(flags + Quote("w.safetensors:c"), "it has a, b");
}

TEST_F(CommandsTest, ResolveExplainsAnotherReadingOfTheSameModel) {
  const std::string resolve =
      "resolve --config '" POSENC_TEST_DATA "/configs/qwen3-8b-yarn.json' ";
  const Outcome other = Posenc(resolve + "--compare-profile gpt_oss");
  ASSERT_EQ(other.exit_code, 0) << other.text;
  EXPECT_THAT(other.text, HasSubstr("compared with profile gpt_oss"));
  EXPECT_THAT(other.text, HasSubstr("frequencies differ by up to"));
  const Outcome same = Posenc(resolve + "--json --compare-length 7");
  ASSERT_EQ(same.exit_code, 0) << same.text;
  EXPECT_EQ(same.json()["difference"]["equal"], true);
}

TEST_F(CommandsTest, ResolveAndAnalyzeSayWhatIsLeftOfAScore) {
  const std::string compare =
      " --preset gpt-oss-20b --compare-profile llama_cpp";
  const Outcome text = Posenc("resolve" + compare);
  ASSERT_EQ(text.exit_code, 0) << text.text;
  EXPECT_THAT(text.text, HasSubstr("90 % of a score is left to distance 54"));
  EXPECT_THAT(text.text, HasSubstr("% at 131072"));
  const Outcome near = Posenc("resolve" + compare + " --kept-to 1000");
  EXPECT_THAT(near.text, HasSubstr("at least 90 % of a score is left up to "
                                   "distance 1000, 99."));
  const Json difference =
      Posenc("resolve --json --kept-to 1000" + compare).json()["difference"];
  EXPECT_EQ(difference["first_distance"], "-1");
  EXPECT_EQ(difference["length"], "1000");
  const double kept = difference["kept_at_length"];
  const Outcome analysis = Posenc(
      "analyze --json --max-distance 1000 --distance-step 500" + compare);
  ASSERT_EQ(analysis.exit_code, 0) << analysis.text;
  ASSERT_EQ(analysis.json()["kept"].size(), 3);
  EXPECT_NEAR(analysis.json()["kept"][2].get<double>(), kept, 1e-15);
  const Outcome shown = Posenc("analyze --max-distance 1000" + compare);
  EXPECT_THAT(shown.text, HasSubstr("        kept\n"));
  EXPECT_THAT(shown.text, HasSubstr("share of a score that is left"));
}

TEST_F(CommandsTest, WrongDistancesOfAComparisonNameTheirFlag) {
  ExpectUsage("resolve --preset gpt-oss-20b --kept-to 5", "--kept-to");
  const std::string compare =
      "resolve --preset gpt-oss-20b --compare-profile llama_cpp ";
  ExpectUsage(compare + "--kept-to 0", "--kept-to");
  ExpectUsage(compare + "--kept-to -1", "--kept-to");
  ExpectUsage(compare + "--kept-to 2147483649", "--kept-to");
  ExpectServerError(
      "analyze --preset gpt-oss-20b --compare-spec '{\"pairing\":"
      "\"PAIRING_HALF_SPLIT\",\"rotaryDim\":64,\"axes\":{\"assignment\":"
      "\"ASSIGNMENT_SECTIONED\",\"sections\":[16,16]}}'",
      "compare_with");
}

TEST_F(CommandsTest, HelpOfEveryCommandHasAnExample) {
  for (const char* command :
       {"info", "resolve", "analyze", "positions", "table", "apply",
        "reposition", "add", "bias", "scores", "convert", "sample", "check"}) {
    const Outcome outcome = Posenc(std::string(command) + " --help");
    EXPECT_EQ(outcome.exit_code, 0);
    EXPECT_THAT(outcome.text,
                HasSubstr(std::string("Example:\n  posenc ") + command));
  }
}

}  // namespace
}  // namespace posenc::cli
