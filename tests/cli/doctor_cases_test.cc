// Doctor on checkpoints that people filed: for each,
// tests/data/doctor/cases.json has the thread, the fault, and the expected
// finding.

#include "tests/fixtures/doctor_cases.h"

#include <gmock/gmock.h>

namespace posenc::cli {
namespace {

class DoctorCasesTest : public DoctorCases {};

TEST_F(DoctorCasesTest, BadCasesHaveTheirFindingsAndGoodCasesDoNot) {
  ASSERT_TRUE(Data().is_object());
  EXPECT_GE(Data()["cases"].size(), 80);
  int number = 0;
  for (const Json& of : Data()["cases"]) {
    const auto id = of["id"].get<std::string>();
    SCOPED_TRACE(of["thread"].get<std::string>() + ", " + id);
    const std::string folder = "case" + std::to_string(number++);
    int exit_code = -1;
    const Json bad = Output(Write(of, "bad", folder + "bad"), &exit_code);
    ASSERT_TRUE(bad.is_object());
    EXPECT_EQ(exit_code, of["exit"].get<int>()) << bad.dump(1);
    const Json* const finding = FindId(bad, id);
    ASSERT_NE(finding, nullptr) << bad.dump(1);
    EXPECT_EQ((*finding)["severity"], of["severity"]) << finding->dump(1);
    if (of.value("rank", 0) == 1) {
      EXPECT_EQ(bad["findings"][0]["id"], id) << bad.dump(1);
    }
    const std::string said = (*finding)["message"].get<std::string>() + "\n" +
                             (*finding)["fix"].get<std::string>();
    for (const Json& text : of.value("texts", Json::array())) {
      EXPECT_THAT(said, testing::HasSubstr(text.get<std::string>()));
    }
    for (const Json& text : of.value("absent_texts", Json::array())) {
      EXPECT_THAT(said, testing::Not(testing::HasSubstr(text)));
    }
    if (of.contains("readers")) {
      Json names = Json::array();
      for (const Json& reader : (*finding)["readers"]) {
        names.push_back(reader["name"]);
      }
      EXPECT_EQ(names, of["readers"]);
    }
    for (const Json& other : of.value("absent", Json::array())) {
      EXPECT_EQ(FindId(bad, other.get<std::string>()), nullptr) << bad.dump(1);
    }
    const Json good = Output(Write(of, "good", folder + "good"), &exit_code);
    ASSERT_TRUE(good.is_object());
    EXPECT_EQ(exit_code, of.value("good_exit", 0)) << good.dump(1);
    EXPECT_EQ(FindId(good, id), nullptr) << good.dump(1);
  }
}

// Compares the share of a score that a reader keeps at a distance with numbers
// from threads and from doctor's reference, to their printed digits.
TEST_F(DoctorCasesTest, ReadersAreAsFarApartAsPeopleMeasured) {
  const Json llama31 = Data()["models"]["llama-3.1-8b"];
  const Json llama32 = Data()["models"]["llama-3.2-1b"];
  const Json three_b = {{"hidden_size", 3072},
                        {"num_attention_heads", 24},
                        {"head_dim", 128},
                        {"num_hidden_layers", 28}};
  // transformers scales by rope_parameters, which the other reader ignores.
  const auto unscaled = [](Json config) {
    config["rope_parameters"] = config["rope_scaling"];
    config.erase("rope_scaling");
    return config;
  };
  // transformers uses the factor of rope_scaling, and llama.cpp the other
  // factor.
  const auto by_8 = [](Json config) {
    config["rope_parameters"] = config["rope_scaling"];
    config["rope_parameters"]["factor"] = 8.0;
    config["rope_parameters"]["rope_theta"] = config["rope_theta"];
    return config;
  };
  Json llama32_3b = llama32;
  llama32_3b.merge_patch(three_b);
  Json conflict = Data()["models"]["qwen3-8b-yarn"];
  conflict["rope_scaling"]["type"] = "linear";
  struct Stated {
    const char* thread;
    Json config;
    const char* id;
    const char* reader;
    int length;
    double kept, digits;  // digits: half of kept's last digit
    std::int64_t first_distance = -2, first_angle = -2;  // -2: not stated
    double logits = 1;
  };
  const std::vector<Stated> all = {
      {"mlx-vlm 1710", unscaled(llama31), "config.new-spelling-only", "mlx-lm",
       1000, 0.963, 0.0005},
      {"mlx-vlm 1710", unscaled(llama31), "config.new-spelling-only", "mlx-lm",
       8192, 0.769, 0.0005},
      {"mlx-vlm 1710", unscaled(llama31), "config.new-spelling-only", "mlx-lm",
       20000, 0.627, 0.0005},
      {"unsloth 6197", unscaled(llama32_3b), "config.new-spelling-only",
       "mlx-lm", 29696, 0.60, 0.005},
      // Answers become bad before the score reaches its minimum.
      {"llama-models 241, 1B", by_8(llama32), "config.both-spellings",
       "llama.cpp", 80000, 0.787, 0.0005},
      {"llama-models 241, 3B", by_8(llama32_3b), "config.both-spellings",
       "llama.cpp", 80000, 0.757, 0.0005},
      {"doctor.md 1", conflict, "config.type-conflict", "mlx-lm", 131072, 0.35,
       0.005, 4, -2, 0.77},
      {"vLLM 28244", Data()["models"]["gpt-oss-20b"], "readers.frequencies",
       "llama.cpp", 131072, 0.69, 0.005, 5443, 46},
  };
  int number = 0;
  for (const Stated& stated : all) {
    const std::string folder = "stated" + std::to_string(number++);
    SCOPED_TRACE(std::string(stated.thread) + ", " +
                 std::to_string(stated.length));
    Json files = {{"config.json", stated.config}};
    files["arguments"] = "--length " + std::to_string(stated.length);
    int exit_code = -1;
    const Json told = Output(WriteFiles(files, folder), &exit_code);
    const Json* const finding = FindId(told, stated.id);
    ASSERT_NE(finding, nullptr) << told.dump(1);
    const Json* reader = nullptr;
    for (const Json& one : (*finding)["readers"]) {
      if (one["name"] == stated.reader) reader = &one;
    }
    ASSERT_NE(reader, nullptr) << finding->dump(1);
    EXPECT_NEAR((*reader)["kept_at_length"].get<double>(), stated.kept,
                stated.digits);
    if (stated.first_distance != -2) {
      EXPECT_EQ((*reader)["first_distance"], stated.first_distance);
    }
    if (stated.first_angle != -2) {
      EXPECT_EQ((*reader)["first_angle"], stated.first_angle);
    }
    const double amplitude = (*reader)["amplitude_ratio"].get<double>();
    EXPECT_NEAR(amplitude * amplitude, stated.logits, 0.005);
  }
}

}  // namespace
}  // namespace posenc::cli
