// Doctor's rules where no pair of files shows them: presets, lengths, readers.

#include "core/model/doctor/doctor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/model/doctor/readers.h"
#include "core/model/presets.h"
#include "nlohmann/json.hpp"

namespace posenc::core {
namespace {

using nlohmann::json;
using testing::HasSubstr;

DoctorInput Config(const json& config) {
  DoctorInput input;
  input.path = "config.json";
  input.text = config.dump();
  return input;
}

Diagnosis Diagnosed(const json& config, const DoctorOptions& options = {}) {
  auto diagnosis = Diagnose({Config(config)}, options);
  EXPECT_TRUE(diagnosis.ok()) << diagnosis.status();
  return *std::move(diagnosis);
}

const Finding* Find(const Diagnosis& diagnosis, const std::string& id) {
  for (const Finding& finding : diagnosis.findings) {
    if (finding.id == id) return &finding;
  }
  return nullptr;
}

json Plain() {
  return {{"model_type", "llama"},    {"hidden_size", 512},
          {"num_attention_heads", 8}, {"head_dim", 64},
          {"rope_theta", 500000.0},   {"max_position_embeddings", 131072}};
}

// Errors of presets that are true: a reader of these files goes wrong.
struct KnownError {
  const char* preset;
  const char* id;
  const char* why;
};
constexpr KnownError kKnownErrors[] = {
    {"gpt-oss-20b", "readers.frequencies", "llama.cpp and mlx-lm round a ramp"},
    {"gpt-oss-120b", "readers.frequencies", "likewise"},
    {"glm-4-9b", "readers.pairing", "mlx-lm rotates the whole head"},
    {"laguna", "readers.amplitude", "its attention_factor is not read"},
    {"deepseek-v2-lite", "readers.softmax",
     "transformers before 5.15 leaves out mscale^2"},
};

TEST(DoctorPresetsTest, NoPresetHasAFalseError) {
  for (const Preset& preset : Presets()) {
    DoctorInput input;
    input.path = "config.json";
    input.text = std::string(preset.config_json);
    const auto diagnosis = Diagnose({input}, {});
    ASSERT_TRUE(diagnosis.ok()) << diagnosis.status();
    EXPECT_EQ(diagnosis->inputs[0].unreadable, "") << preset.name;
    EXPECT_EQ(diagnosis->inputs[0].content_hash.size(), 64) << preset.name;
    for (const Finding& finding : diagnosis->findings) {
      EXPECT_NE(finding.id, "config.unlike-published") << preset.name;
      if (finding.severity != Severity::kError) continue;
      const bool known = std::any_of(
          std::begin(kKnownErrors), std::end(kKnownErrors),
          [&](const KnownError& error) {
            return error.preset == preset.name && error.id == finding.id;
          });
      EXPECT_TRUE(known) << preset.name << ": " << finding.id << " "
                         << finding.message;
    }
  }
}

TEST(DoctorPresetsTest, GptOssIsKeptTo5443AndAlarmsAt46) {
  DoctorInput input;
  input.path = "config.json";
  input.text = std::string(FindPreset("gpt-oss-20b")->config_json);
  const auto diagnosis = Diagnose({input}, {});
  ASSERT_TRUE(diagnosis.ok());
  const Finding* const finding = Find(*diagnosis, "readers.frequencies");
  ASSERT_NE(finding, nullptr);
  ASSERT_EQ(finding->readers.size(), 2);
  EXPECT_EQ(finding->readers[0].name, "llama.cpp");
  EXPECT_EQ(finding->readers[1].name, "mlx-lm");
  EXPECT_NEAR(static_cast<double>(finding->readers[0].first_distance), 5443, 4);
  EXPECT_EQ(finding->readers[0].first_angle, 46);
}

TEST(DoctorShapeTest, RowsOfKProjProveWidthsThatAreNoPowerOfTwo) {
  DoctorInput weights;
  weights.kind = InputKind::kSafetensors;
  weights.path = "model.safetensors";
  weights.key_rows = 2560;  // 32 heads of 80
  DoctorInput config = Config({{"model_type", "llama"},
                               {"hidden_size", 2560},
                               {"num_attention_heads", 32},
                               {"max_position_embeddings", 4096}});
  const auto alone = Diagnose({config}, {});
  ASSERT_TRUE(alone.ok());
  EXPECT_NE(Find(*alone, "config.head-dim-derived"), nullptr);
  const auto proven = Diagnose({config, weights}, {});
  ASSERT_TRUE(proven.ok());
  EXPECT_EQ(Find(*proven, "config.head-dim-derived"), nullptr);
  weights.key_rows = 2048;  // 32 heads of 64
  const auto other = Diagnose({config, weights}, {});
  ASSERT_TRUE(other.ok());
  const Finding* const finding = Find(*other, "config.head-dim-derived");
  ASSERT_NE(finding, nullptr);
  EXPECT_THAT(finding->message, HasSubstr("k_proj has 2048 rows"));
}

TEST(DoctorShapeTest, WidthsThatEveryReaderDividesAreNotToBeWritten) {
  const auto told = [](json config) {
    config["hidden_size"] = 2560;
    config["num_attention_heads"] = 32;
    config["max_position_embeddings"] = 4096;
    return Find(Diagnosed(config), "config.head-dim-derived") != nullptr;
  };
  EXPECT_TRUE(told({{"model_type", "llama"}}));
  EXPECT_FALSE(told({{"model_type", "gpt_neox"}}));
  EXPECT_FALSE(told({{"model_type", "stablelm"}}));
  // A latent attention has no such heads.
  EXPECT_FALSE(told({{"model_type", "longcat_flash_ngram"},
                     {"qk_nope_head_dim", 128},
                     {"qk_rope_head_dim", 64}}));
}

TEST(DoctorShapeTest, TheWidthOfAFixIsAWholeNumberAndMends) {
  json config = {{"model_type", "mistral"},
                 {"hidden_size", 4097},
                 {"num_attention_heads", 32},
                 {"max_position_embeddings", 4096}};
  const Diagnosis diagnosis = Diagnosed(config);
  const Finding* const finding = Find(diagnosis, "config.head-dim-derived");
  ASSERT_NE(finding, nullptr);
  EXPECT_THAT(finding->message, HasSubstr("no whole number"));
  EXPECT_THAT(finding->fix, HasSubstr("\"head_dim\": 128,"));
  config["head_dim"] = 128;
  EXPECT_EQ(Find(Diagnosed(config), "config.head-dim-derived"), nullptr);
}

// Falcon's class has no setter for head_dim.
TEST(DoctorShapeTest, AFalconsWidthIsToBeCorrected) {
  const Diagnosis diagnosis = Diagnosed({{"model_type", "falcon"},
                                         {"hidden_size", 4545},
                                         {"num_attention_heads", 71},
                                         {"max_position_embeddings", 2048}});
  const Finding* const finding = Find(diagnosis, "config.head-dim-derived");
  ASSERT_NE(finding, nullptr);
  EXPECT_THAT(finding->fix, HasSubstr("4544 and 4615 would fit"));
  EXPECT_THAT(finding->fix, testing::Not(HasSubstr("head_dim")));
}

// transformers refuses such a Llama with a head_dim, too, and GPT-NeoX has no
// such key.
TEST(DoctorShapeTest, WhereHeadDimCannotMendTheWidthItselfIsToBeCorrected) {
  for (const char* type : {"llama", "gpt_neox", "stablelm"}) {
    json config = {{"model_type", type},
                   {"hidden_size", 4100},
                   {"num_attention_heads", 32},
                   {"num_key_value_heads", 32},
                   {"max_position_embeddings", 4096}};
    for (const bool given : {false, true}) {
      if (given) config["head_dim"] = 128;
      const Diagnosis diagnosis = Diagnosed(config);
      const Finding* const finding = Find(diagnosis, "config.head-dim-derived");
      ASSERT_NE(finding, nullptr) << type;
      EXPECT_THAT(finding->message, HasSubstr("no multiple of"));
      EXPECT_THAT(finding->fix, HasSubstr("4096 and 4128 would fit"));
    }
    config["hidden_size"] = 4096;
    EXPECT_EQ(Find(Diagnosed(config), "config.head-dim-derived"), nullptr)
        << type;
  }
}

// mlx-lm's classes and llama.cpp's converter have values for absent slices, and
// MiniCPM 3's class in mlx-lm has none.
TEST(DoctorShapeTest, AbsentSlicesOfLatentAttentionAreTheClasses) {
  json config = {
      {"model_type", "deepseek_v3"}, {"hidden_size", 7168},
      {"num_attention_heads", 128},  {"num_hidden_layers", 2},
      {"rope_theta", 10000},         {"max_position_embeddings", 4096}};
  for (const char* type :
       {"deepseek_v2", "deepseek_v3", "deepseek_v32", "glm4_moe_lite"}) {
    config["model_type"] = type;
    EXPECT_EQ(Find(Diagnosed(config), "readers.refuses"), nullptr) << type;
  }
  config["model_type"] = "minicpm3";
  const Diagnosis diagnosis = Diagnosed(config);
  const Finding* const finding = Find(diagnosis, "readers.refuses");
  ASSERT_NE(finding, nullptr);
  ASSERT_EQ(finding->readers.size(), 1);
  EXPECT_EQ(finding->readers[0].name, "mlx-lm");
}

// transformers' class scales a gpt-oss whose file says nothing; others do as
// the fix has it.
TEST(DoctorReaderTest, TheScalingOfAClassIsToBeWrittenIntoTheFile) {
  json config = {
      {"model_type", "gpt_oss"},   {"hidden_size", 2880},
      {"num_attention_heads", 64}, {"head_dim", 64},
      {"num_hidden_layers", 24},   {"max_position_embeddings", 131072}};
  const auto unscaled = [](const Diagnosis& diagnosis) {
    return std::count_if(diagnosis.findings.begin(), diagnosis.findings.end(),
                         [](const Finding& finding) {
                           return finding.message.find("against no scaling") !=
                                  std::string::npos;
                         });
  };
  const Diagnosis before = Diagnosed(config);
  EXPECT_EQ(unscaled(before), 1);
  const Finding* const finding = Find(before, "readers.frequencies");
  ASSERT_NE(finding, nullptr);
  const std::size_t begin = finding->fix.find('"');
  ASSERT_NE(begin, std::string::npos) << finding->fix;
  config.update(json::parse("{" + finding->fix.substr(begin) + "}"));
  EXPECT_EQ(unscaled(Diagnosed(config)), 0) << finding->fix;
}

// llama.cpp's converter asks transformers' class, to which null is absent.
TEST(DoctorReaderTest, ANullScalingIsTheClassesInLlamaCppToo) {
  for (const char* type : {"gpt_oss", "apertus"}) {
    const json config = {
        {"model_type", type},        {"hidden_size", 4096},
        {"num_attention_heads", 64}, {"head_dim", 64},
        {"num_hidden_layers", 24},   {"max_position_embeddings", 131072},
        {"rope_scaling", nullptr},   {"rope_parameters", nullptr}};
    const Diagnosis diagnosis = Diagnosed(config, {.readers = {"llama_cpp"}});
    for (const Finding& finding : diagnosis.findings) {
      EXPECT_EQ(finding.message.find("against no scaling"), std::string::npos)
          << type << ": " << finding.message;
    }
  }
}

TEST(DoctorReaderTest, NoKeyIsAFixForAReaderThatNeverScales) {
  json config = Plain();
  config["model_type"] = "qwen3_moe";
  config["rope_scaling"] = {{"rope_type", "yarn"},
                            {"factor", 4.0},
                            {"original_max_position_embeddings", 32768}};
  const Diagnosis diagnosis = Diagnosed(config, {.readers = {"mlx"}});
  for (const char* id : {"readers.frequencies", "readers.amplitude"}) {
    const Finding* const finding = Find(diagnosis, id);
    ASSERT_NE(finding, nullptr) << id;
    EXPECT_THAT(finding->fix, HasSubstr("does not scale such a model"));
  }
}

TEST(DoctorRowsTest, EveryCheckHasItsTextsAndAnIdOfItsOwn) {
  std::set<std::string> ids;
  for (const CheckRow& row : CheckRows()) {
    EXPECT_TRUE(ids.insert(std::string(row.id)).second) << row.id;
    EXPECT_FALSE(row.finds.empty()) << row.id;
    EXPECT_FALSE(row.message.empty()) << row.id;
    EXPECT_FALSE(row.fix.empty()) << row.id;
  }
}

TEST(DoctorRowsTest, MessagesAreOneLineOfAtMost400Bytes) {
  const Finding finding = MakeFinding(
      "config.type-conflict",
      {"config.json", std::string(1000, 'x') + "\n\x01", "yarn", "dict"});
  EXPECT_LE(finding.message.size(), 400);
  EXPECT_EQ(finding.message.find('\n'), std::string::npos);
  const Finding utf8 = MakeFinding(
      "config.key-unread", {std::string(397, 'x') + "\xe2\x82\xac", "y", "z"});
  EXPECT_LE(utf8.message.size(), 400);
  EXPECT_EQ(utf8.message.find('\xe2'), std::string::npos);
}

TEST(DoctorSizeTest, SeverityFollowsWhatIsLeftOfAScore) {
  Verdict verdict;
  EXPECT_EQ(SeverityOf(verdict), Severity::kNote);
  verdict.least_kept = 0.98;
  EXPECT_EQ(SeverityOf(verdict), Severity::kWarning);
  verdict.first_distance = 0;
  EXPECT_EQ(SeverityOf(verdict), Severity::kError);
  verdict = {};
  verdict.amplitude_ratio = 1.02;  // 4 % on logits
  EXPECT_EQ(SeverityOf(verdict), Severity::kWarning);
  verdict.amplitude_ratio = 1.03;
  EXPECT_EQ(SeverityOf(verdict), Severity::kError);
  verdict.amplitude_ratio = 1.001;
  EXPECT_EQ(SeverityOf(verdict), Severity::kNote);
  verdict.amplitude_ratio = std::nan("");
  EXPECT_EQ(SeverityOf(verdict), Severity::kError);
}

TEST(DoctorSizeTest, AShorterLengthMakesLessOfIt) {
  json config = Plain();
  config["rope_scaling"] = {{"rope_type", "yarn"},
                            {"factor", 32.0},
                            {"original_max_position_embeddings", 4096},
                            {"truncate", false}};
  EXPECT_EQ(Find(Diagnosed(config), "readers.frequencies")->severity,
            Severity::kError);
  EXPECT_NE(
      Find(Diagnosed(config, {.length = 100}), "readers.frequencies")->severity,
      Severity::kError);
}

TEST(DoctorReaderTest, FindingsOfOtherReadersAreLeftOut) {
  json config = Plain();
  config.erase("rope_theta");
  config["rope_parameters"] = {{"rope_type", "default"},
                               {"rope_theta", 500000.0}};
  EXPECT_NE(Find(Diagnosed(config), "config.new-spelling-only"), nullptr);
  EXPECT_NE(
      Find(Diagnosed(config, {.readers = {"mlx"}}), "config.new-spelling-only"),
      nullptr);
  EXPECT_EQ(Find(Diagnosed(config, {.readers = {"vllm"}}),
                 "config.new-spelling-only"),
            nullptr);
}

TEST(DoctorReaderTest, AContradictionInOneFileIsAlwaysTold) {
  json config = Plain();
  config["rope_scaling"] = {{"rope_type", "yarn"},
                            {"type", "linear"},
                            {"factor", 4.0},
                            {"original_max_position_embeddings", 32768}};
  const Diagnosis diagnosis = Diagnosed(config, {.readers = {"vllm"}});
  const Finding* const finding = Find(diagnosis, "config.type-conflict");
  ASSERT_NE(finding, nullptr);
  EXPECT_TRUE(finding->readers.empty());
}

TEST(DoctorBadInputTest, KeysThatStandTwiceAreToldWithBothValues) {
  DoctorInput input = Config(Plain());
  input.text.insert(1, R"("rope_theta": 10000, "more": {"a": [{"b": null,)"
                       R"( "c": 1, "c": "x"}], "a": 2},)");
  const auto diagnosis = Diagnose({input}, {});
  ASSERT_TRUE(diagnosis.ok());
  std::vector<std::string> messages;
  for (const Finding& finding : diagnosis->findings) {
    if (finding.id == "config.key-twice") messages.push_back(finding.message);
  }
  EXPECT_THAT(
      messages,
      testing::UnorderedElementsAre(
          HasSubstr(": rope_theta stands twice, as 10000 and as 500000"),
          HasSubstr(": more.a.c stands twice, as 1 and as \"x\""),
          HasSubstr(": more.a stands twice, as a list and as 2")));
  EXPECT_EQ(Find(Diagnosed(Plain()), "config.key-twice"), nullptr);
}

TEST(DoctorBadInputTest, OfThousandsOfKeysTheFirstAreTold) {
  json config = Plain();
  for (int i = 0; i < 1000; ++i) config[absl::StrCat("rope_", i)] = 1;
  EXPECT_LT(Diagnosed(config).findings.size(), 100);
}

TEST(DoctorBadInputTest, OfThousandsOfRopesTheFirstAreCompared) {
  json config = Plain();
  config["num_hidden_layers"] = 1024;
  for (int i = 0; i < 1024; ++i) {
    const std::string type = absl::StrCat("type_", i);
    config["layer_types"].push_back(type);
    config["rope_parameters"][type] = {
        {"rope_type", "linear"}, {"factor", 0.5}, {"rope_theta", 10000.0 + i}};
  }
  const Diagnosis diagnosis =
      Diagnosed(config, {.readers = {"hf"}, .length = 64});
  EXPECT_LT(diagnosis.findings.size(), 100);
}

TEST(DoctorBadInputTest, EndsWhenItIsStopped) {
  int asked = 0;
  const StopAsked stop = [&asked] {
    return ++asked < 1000 ? absl::OkStatus() : absl::CancelledError("gone");
  };
  json config = Plain();
  config["rope_scaling"] = {
      {"rope_type", "yarn"}, {"type", "linear"}, {"factor", 4.0}};
  const auto diagnosis = Diagnose({Config(config)}, {}, stop);
  EXPECT_EQ(diagnosis.status().code(), absl::StatusCode::kCancelled);
  EXPECT_LT(asked, 2000);
}

TEST(DoctorReaderTest, UnknownReadersAndBadLengthsAreRefused) {
  EXPECT_THAT(
      Diagnose({Config(Plain())}, {.readers = {"nobody"}}).status().message(),
      HasSubstr("readers[0]: \"nobody\" is not known"));
  for (const std::int64_t length : {0l, -1l, 1l << 32}) {
    EXPECT_THAT(
        Diagnose({Config(Plain())}, {.length = length}).status().message(),
        HasSubstr("length: "));
  }
}

TEST(DoctorRuntimeTest, BrokenCommandLinesAreRefused) {
  for (const char* runtime :
       {"vllm serve --hf-overrides '{", "vllm --hf-overrides {}x",
        "vllm serve --hf-overrides", "x \\", "vllm --hf-overrides [1]"}) {
    EXPECT_THAT(
        Diagnose({Config(Plain())}, {.runtime = runtime}).status().message(),
        HasSubstr("runtime: "))
        << runtime;
  }
}

// llama.cpp PR 18056: values between commas.
TEST(DoctorRuntimeTest, OneOverrideKvMayGiveSeveralKeys) {
  DoctorInput input;
  input.path = "model.gguf";
  input.kind = InputKind::kGguf;
  input.gguf.emplace();
  input.gguf->architecture = "gemma3";
  input.gguf->freq_base = 1e6;
  input.gguf->freq_base_swa = 1e4;
  const auto unread = [&](const std::string& flags) {
    const auto diagnosis =
        Diagnose({input}, {.runtime = "llama-server " + flags});
    EXPECT_TRUE(diagnosis.ok()) << diagnosis.status();
    return Find(*diagnosis, "runtime.flag-unread") != nullptr;
  };
  EXPECT_TRUE(unread("--rope-freq-base 5e5"));
  EXPECT_FALSE(
      unread("--rope-freq-base 5e5 --override-kv "
             "gemma3.context_length=int:8192,"
             "gemma3.rope.freq_base_swa=float:500000"));
}

TEST(DoctorRuntimeTest, TheServedLengthIsTheClaimedOne) {
  EXPECT_EQ(Diagnosed(Plain(), {.runtime = "vllm serve m --max-model-len 4096"})
                .length,
            4096);
  EXPECT_EQ(
      Diagnosed(Plain(), {.runtime = "vllm serve --max-model-len=32k"}).length,
      32000);
  const auto served = [](const std::string& length) {
    return Diagnosed(Plain(),
                     {.runtime = "vllm serve --max-model-len " + length})
        .length;
  };
  EXPECT_EQ(served("32K"), 32768);
  EXPECT_EQ(served("1M"), 1048576);
  EXPECT_EQ(served("25.6k"), 25600);
  for (const char* none : {"auto", "-1", "0", "k", "4G", "1e400", "nan"}) {
    EXPECT_EQ(served(none), 131072) << none;
  }
  EXPECT_EQ(
      Diagnosed(Plain(), {.length = 7, .runtime = "llama-server -c 9"}).length,
      7);
  EXPECT_EQ(Diagnosed(Plain()).length, 131072);
}

TEST(DoctorConfigsTest, TheSecondIsComparedWithTheFirst) {
  json other = Plain();
  other["rope_theta"] = 10000.0;
  DoctorInput second = Config(other);
  second.path = "b/config.json";
  const auto diagnosis = Diagnose({Config(Plain()), second}, {});
  ASSERT_TRUE(diagnosis.ok());
  const Finding* const finding = Find(*diagnosis, "readers.frequencies");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->severity, Severity::kError);
  EXPECT_EQ(finding->inputs,
            (std::vector<std::string>{"b/config.json", "config.json"}));
}

TEST(DoctorJsonTest, FaultsHaveLineAndColumn) {
  EXPECT_EQ(JsonFault("{}"), "");
  EXPECT_EQ(JsonFault("{\n \"a\": 1,\n \"b\" 2}"),
            "not JSON: line 3, column 6");
  EXPECT_THAT(JsonFault("[1]"), HasSubstr("array"));
  EXPECT_THAT(JsonFault(""), HasSubstr("not JSON: line 1, column"));
  EXPECT_THAT(JsonFault(std::string(10000, '[')), HasSubstr("nested deeper"));
  EXPECT_THAT(JsonFault(std::string(2 << 20, ' ')), HasSubstr("bytes"));
  EXPECT_EQ(JsonFault(std::string("{}\n\0{}", 6)),
            "not JSON: line 2, column 1");
}

TEST(DoctorJsonTest, DuplicateKeysReadAsTheirLastValue) {
  DoctorInput input = Config(Plain());
  input.text = "{\"rope_theta\": 10000, " + input.text.substr(1);
  const auto diagnosis = Diagnose({input}, {});
  ASSERT_TRUE(diagnosis.ok());
  EXPECT_THAT(diagnosis->inputs[0].spec, HasSubstr("base 500000"));
}

TEST(DoctorJsonTest, AValueOfTheWrongTypeMakesItUnreadable) {
  json config = Plain();
  config["rope_theta"] = "big";
  const Diagnosis diagnosis = Diagnosed(config);
  EXPECT_TRUE(diagnosis.unreadable());
  EXPECT_THAT(diagnosis.inputs[0].unreadable, HasSubstr("rope_theta"));
}

}  // namespace
}  // namespace posenc::core
