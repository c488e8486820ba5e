// Doctor's rules where no pair of files shows them: presets, lengths, readers.

#include "core/model/doctor/doctor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
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

// Errors of published configurations that are true, likewise.
constexpr KnownError kPublishedErrors[] = {
    {"THUDM/glm-4-9b-chat-hf", "readers.pairing",
     "mlx-lm rotates the whole head"},
    {"openai/gpt-oss-20b", "readers.frequencies",
     "llama.cpp and mlx-lm round a ramp"},
    {"deepseek-ai/DeepSeek-V2-Chat", "readers.softmax",
     "transformers before 5.15 leaves out mscale^2"},
    {"deepseek-ai/DeepSeek-V2-Lite-Chat", "readers.softmax", "likewise"},
    {"deepseek-ai/DeepSeek-Coder-V2-Lite-Instruct", "readers.softmax",
     "likewise"},
    {"microsoft/UserLM-8b", "config.new-spelling-only",
     "saved by transformers 5, whose spelling older readers do not know"},
    {"zai-org/GLM-4.6V-Flash", "config.new-spelling-only", "likewise"},
    {"MiniMaxAI/MiniMax-Text-01-hf", "readers.pairing",
     "transformers alone does not read rotary_dim"},
    {"deepseek-ai/DeepSeek-R1-0528-Qwen3-8B", "readers.amplitude",
     "SGLang alone reads attn_factor (DeepSeek-R1 684)"},
    {"Qwen/Qwen-72B", "readers.frequencies",
     "mlx-lm's class of Qwen's first models reads no base"},
    {"Qwen/Qwen3-235B-A22B with YaRN, as its card says", "readers.frequencies",
     "mlx-lm's qwen3_moe does not scale"},
    {"Qwen/Qwen3-235B-A22B with YaRN, as its card says", "readers.amplitude",
     "likewise"},
    {"rinna/bilingual-gpt-neox-4b-8k", "readers.frequencies",
     "nor does its gpt_neox"},
    {"zai-org/GLM-4-32B-0414 with YaRN, as its card says",
     "readers.frequencies", "nor its glm4"},
    {"zai-org/GLM-4-32B-0414 with YaRN, as its card says", "readers.amplitude",
     "likewise"},
    {"OpenGVLab/InternVL3_5-GPT-OSS-20B-A4B-Preview-HF", "readers.frequencies",
     "as gpt-oss 20B"},
    {"unsloth/gpt-oss-20b-BF16", "readers.frequencies", "likewise"},
    {"deepseek-ai/DeepSeek-V2.5", "readers.softmax", "as DeepSeek V2"},
};
// They have no rotary key, and rotate nothing.
constexpr absl::string_view kWithoutRope[] = {"google-bert/bert-base-uncased",
                                              "openai-community/gpt2",
                                              "bigcode/starcoder",
                                              "facebook/opt-6.7b",
                                              "google-t5/t5-base",
                                              "openai/whisper-large-v3"};

TEST(DoctorPublishedTest, NoPublishedConfigurationHasAFalseError) {
  std::ifstream file(std::string(POSENC_TEST_DATA) + "/parity/published.jsonl");
  std::string line;
  int read = 0;
  std::set<std::pair<std::string, std::string>> unseen;
  for (const KnownError& error : kPublishedErrors) {
    unseen.emplace(error.preset, error.id);
  }
  while (std::getline(file, line)) {
    const json published = json::parse(line);
    const auto name = published["name"].get<std::string>();
    const Diagnosis diagnosis = Diagnosed(published["config"]);
    ++read;
    EXPECT_EQ(
        diagnosis.unreadable(),
        std::count(std::begin(kWithoutRope), std::end(kWithoutRope), name) == 1)
        << name << ": " << diagnosis.inputs[0].unreadable;
    for (const Finding& finding : diagnosis.findings) {
      if (finding.severity != Severity::kError) continue;
      const bool known =
          std::any_of(std::begin(kPublishedErrors), std::end(kPublishedErrors),
                      [&](const KnownError& error) {
                        return error.preset == name && error.id == finding.id;
                      });
      EXPECT_TRUE(known) << name << ": " << finding.id << " "
                         << finding.message;
      unseen.erase({name, finding.id});
    }
  }
  EXPECT_GE(read, 516);
  EXPECT_TRUE(unseen.empty()) << unseen.begin()->first;
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
