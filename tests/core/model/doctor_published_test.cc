// Doctor on the configurations of published models, tests/data/parity: what it
// tells of them is true, and was looked at.

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/string_view.h"
#include "core/model/doctor/doctor.h"
#include "nlohmann/json.hpp"

namespace posenc::core {
namespace {

using nlohmann::json;

// An error or a warning that is true of these models.
struct KnownFinding {
  Severity severity;
  const char* id;
  const char* why;
  std::vector<const char*> models;
};
const std::vector<KnownFinding>& KnownFindings() {
  static const auto* const known = new std::vector<KnownFinding>{
      {Severity::kError,
       "readers.pairing",
       "mlx-lm rotates the whole head",
       {"THUDM/glm-4-9b-chat-hf"}},
      {Severity::kError,
       "readers.pairing",
       "transformers alone does not read rotary_dim",
       {"MiniMaxAI/MiniMax-Text-01-hf"}},
      {Severity::kError,
       "readers.frequencies",
       "llama.cpp and mlx-lm round a ramp",
       {"openai/gpt-oss-20b",
        "OpenGVLab/InternVL3_5-GPT-OSS-20B-A4B-Preview-HF",
        "unsloth/gpt-oss-20b-BF16"}},
      {Severity::kError,
       "readers.frequencies",
       "mlx-lm's classes of GPT-NeoX and GLM 4 do not scale",
       {"rinna/bilingual-gpt-neox-4b-8k",
        "zai-org/GLM-4-32B-0414 with YaRN, as its card says"}},
      {Severity::kError,
       "readers.amplitude",
       "mlx-lm's class of GLM 4 does not scale",
       {"zai-org/GLM-4-32B-0414 with YaRN, as its card says"}},
      {Severity::kError,
       "readers.frequencies",
       "mlx-lm's class of Qwen's first models reads no base",
       {"Qwen/Qwen-72B"}},
      {Severity::kError,
       "readers.frequencies",
       "mlx-lm's qwen3_moe does not scale",
       {"Qwen/Qwen3-235B-A22B with YaRN, as its card says"}},
      {Severity::kError,
       "readers.amplitude",
       "mlx-lm's qwen3_moe does not scale",
       {"Qwen/Qwen3-235B-A22B with YaRN, as its card says"}},
      {Severity::kError,
       "readers.amplitude",
       "SGLang alone reads attn_factor (DeepSeek-R1 684)",
       {"deepseek-ai/DeepSeek-R1-0528-Qwen3-8B"}},
      {Severity::kError,
       "readers.softmax",
       "transformers before 5.15 leaves out mscale^2",
       {"deepseek-ai/DeepSeek-V2-Chat", "deepseek-ai/DeepSeek-V2-Lite-Chat",
        "deepseek-ai/DeepSeek-Coder-V2-Lite-Instruct",
        "deepseek-ai/DeepSeek-V2.5"}},
      {Severity::kError,
       "config.new-spelling-only",
       "saved by transformers 5, whose spelling older readers do not know",
       {"microsoft/UserLM-8b", "zai-org/GLM-4.6V-Flash"}},
      {Severity::kWarning,
       "config.factor-ratio",
       "the factor is not the new length over the old one",
       {"arcee-ai/AFM-4.5B-Base", "NousResearch/Yarn-Llama-2-7b-128k",
        "NousResearch/Yarn-Mistral-7b-128k",
        "Qwen2.5-72B with YaRN, as its card says",
        "Qwen/Qwen3-235B-A22B with YaRN, as its card says",
        "Qwen/Qwen3-Next-80B-A3B-Instruct with YaRN, as its card says",
        "Qwen/Qwen3-VL-32B-Instruct with YaRN, as its card says",
        "Qwen/Qwen2.5-VL-7B with YaRN, as its card says",
        "zai-org/GLM-4-32B-0414 with YaRN, as its card says"}},
      {Severity::kWarning,
       "config.length-not-raised",
       "the card says to add rope_scaling alone, and max_position_embeddings "
       "stays",
       {"NousResearch/Yarn-Llama-2-7b-128k",
        "Qwen2.5-72B with YaRN, as its card says",
        "Qwen/Qwen3-Next-80B-A3B-Instruct with YaRN, as its card says",
        "zai-org/GLM-4-32B-0414 with YaRN, as its card says"}},
      {Severity::kWarning,
       "config.dynamic-ntk",
       "its base follows the sequence's length",
       {"tencent/Hunyuan-7B-Instruct", "tencent/Hunyuan-A13B-Instruct",
        "internlm/internlm2-7b", "internlm/internlm2_5-7b-chat-1m",
        "internlm/internlm3-8b-instruct", "OpenGVLab/InternVL3-8B-hf",
        "OpenGVLab/InternVL3-78B-hf", "OpenGVLab/InternVL2-8B",
        "ByteDance/Sa2VA-8B", "tencent/Hunyuan-MT-7B"}},
      {Severity::kWarning,
       "config.longrope-switch",
       "it has two lists",
       {"microsoft/Phi-3-mini-128k-instruct",
        "microsoft/Phi-3-mini-128k-instruct, first revision",
        "microsoft/Phi-3.5-mini-instruct", "microsoft/Phi-4-mini-instruct",
        "microsoft/Phi-4-multimodal-instruct, in transformers",
        "microsoft/Phi-4-multimodal-instruct (remote)"}},
      {Severity::kWarning,
       "config.theta-absent",
       "mlx-lm's class of MiniCPM takes 1000000, transformers' 10000",
       {"openbmb/MiniCPM-2B-sft-bf16", "openbmb/MiniCPM3-4B"}},
      {Severity::kWarning,
       "readers.axes",
       "mlx-lm's classes give images one axis",
       {"Qwen/Qwen2.5-VL-3B-Instruct", "Qwen/Qwen2.5-VL-32B-Instruct",
        "Qwen/Qwen2-VL-2B-Instruct", "Qwen/Qwen2-VL-72B-Instruct",
        "Qwen/Qwen3.5-35B-A3B", "Qwen/Qwen3-VL-4B-Instruct",
        "Qwen/Qwen3-VL-235B-A22B-Instruct", "Qwen/QVQ-72B-Preview",
        "jinaai/jina-embeddings-v4", "ByteDance-Seed/UI-TARS-1.5-7B",
        "Qwen/Qwen3-VL-32B-Instruct with YaRN, as its card says",
        "allenai/olmOCR-2-7B-1025", "Qwen/Qwen2.5-VL-72B-Instruct-AWQ",
        "Qwen/Qwen2.5-VL-7B with YaRN, as its card says",
        "Qwen/Qwen2-VL-7B-Instruct-GPTQ-Int4", "Qwen/Qwen3-VL-8B-Thinking-FP8",
        "Qwen/Qwen3-VL-30B-A3B", "Alibaba-NLP/gme-Qwen2-VL-2B-Instruct"}},
      {Severity::kWarning,
       "config.head-dim-derived",
       "nothing but its weights tells that heads of 80 or 100 channels are "
       "meant",
       {"ibm-granite/granite-3b-code-base-2k",
        "openlm-research/open_llama_3b_v2", "microsoft/phi-2, first revision"}},
      {Severity::kWarning,
       "config.unlike-published",
       "later weights under the same name have other lists",
       {"microsoft/Phi-3-mini-128k-instruct, first revision"}},
      {Severity::kWarning,
       "readers.refuses",
       "mlx-lm's class of Llama takes no file without hidden_size",
       {"llava-hf/llava-1.5-7b-hf"}},
  };
  return *known;
}

// They have no rotary key, and rotate nothing.
constexpr absl::string_view kWithoutRope[] = {"google-bert/bert-base-uncased",
                                              "openai-community/gpt2",
                                              "bigcode/starcoder",
                                              "facebook/opt-6.7b",
                                              "google-t5/t5-base",
                                              "openai/whisper-large-v3"};

std::vector<json> Lines(const std::string& path) {
  std::ifstream file(path);
  std::vector<json> lines;
  for (std::string line; std::getline(file, line);) {
    lines.push_back(json::parse(line));
  }
  return lines;
}

const std::vector<json>& Published() {
  static const auto* const models = new std::vector<json>(
      Lines(std::string(POSENC_TEST_DATA) + "/parity/published.jsonl"));
  return *models;
}

TEST(DoctorPublishedTest, WhatIsToldOfPublishedConfigurationsIsKnownToBeTrue) {
  using Told = std::tuple<std::string, std::string, Severity>;
  std::set<Told> unseen;
  for (const KnownFinding& known : KnownFindings()) {
    for (const char* model : known.models) {
      unseen.emplace(model, known.id, known.severity);
    }
  }
  const std::set<Told> known = unseen;
  EXPECT_GE(Published().size(), 514);
  for (const json& published : Published()) {
    const auto name = published["name"].get<std::string>();
    DoctorInput input;
    input.path = "config.json";
    input.text = published["config"].dump();
    const auto diagnosis = Diagnose({input}, {});
    ASSERT_TRUE(diagnosis.ok()) << name << ": " << diagnosis.status();
    EXPECT_EQ(
        diagnosis->unreadable(),
        std::count(std::begin(kWithoutRope), std::end(kWithoutRope), name) == 1)
        << name << ": " << diagnosis->inputs[0].unreadable;
    for (const Finding& finding : diagnosis->findings) {
      if (finding.severity == Severity::kNote) continue;
      const Told told = {name, finding.id, finding.severity};
      EXPECT_EQ(known.count(told), 1)
          << name << ": " << SeverityName(finding.severity) << " " << finding.id
          << " " << finding.message;
      unseen.erase(told);
    }
  }
  for (const auto& [name, id, severity] : unseen) {
    ADD_FAILURE() << name << ": " << id << " is no longer told";
  }
}

// What doctor knows beside the presets is what was published.
TEST(DoctorPublishedTest, ConfigurationsBesideThePresetsAreThoseOfTheRecord) {
  std::map<std::string, json> record;
  for (const json& published : Published()) {
    record[published["name"]] = published["config"];
    record[published["name"]].erase("vision_config");
  }
  const std::vector<json> known =
      Lines(std::string(POSENC_TEST_DATA) +
            "/../../core/model/doctor/published.jsonl");
  EXPECT_FALSE(known.empty());
  for (const json& model : known) {
    EXPECT_EQ(model["config"], record[model["name"]]) << model["name"];
  }
}

// Whoever writes a file anew and leaves base, scaling and length to the class
// changes all three: that is no other model.
TEST(DoctorPublishedTest, ModelsThatLostBaseScalingAndLengthAreTold) {
  const std::map<std::string, bool> models = {
      {"meta-llama/Llama-3.1-8B-Instruct", true},
      {"meta-llama/Llama-3.2-1B-Instruct", true},
      {"NousResearch/Hermes-3-Llama-3.1-405B", true},
      {"LGAI-EXAONE/EXAONE-4.0-32B", true},
      {"google/gemma-3-27b-it", true},
      // What is left of these is Llama 2, which is no error.
      {"nvidia/Llama-3.1-Nemotron-70B-Instruct-HF", false},
      {"lmsys/vicuna-13b-v1.5-16k", false}};
  std::size_t seen = 0;
  for (const json& published : Published()) {
    const auto model = models.find(published["name"]);
    if (model == models.end()) continue;
    ++seen;
    for (const int length : {0, 2048}) {
      json config = published["config"];
      json& part =
          config.contains("text_config") ? config["text_config"] : config;
      for (const char* key :
           {"rope_scaling", "rope_parameters", "max_position_embeddings"}) {
        part.erase(key);
      }
      part["rope_theta"] = 10000;
      // The record has its class's for some models.
      part.erase("vocab_size");
      if (length > 0) part["max_position_embeddings"] = length;
      DoctorInput input;
      input.path = "config.json";
      input.text = config.dump();
      const auto diagnosis = Diagnose({input}, {});
      ASSERT_TRUE(diagnosis.ok()) << diagnosis.status();
      EXPECT_EQ(
          std::any_of(diagnosis->findings.begin(), diagnosis->findings.end(),
                      [](const Finding& finding) {
                        return finding.id == "config.unlike-published";
                      }),
          model->second)
          << model->first << ", length " << length;
    }
  }
  EXPECT_EQ(seen, models.size());
}

// A model that was trained anew in a known shape has another tokenizer; tuning
// adds a few tokens to it.
TEST(DoctorPublishedTest, AnotherVocabularyIsAnotherModel) {
  const auto told = [](int vocabulary) {
    DoctorInput input;
    input.path = "config.json";
    input.text =
        json{{"model_type", "llama"},           {"hidden_size", 2048},
             {"num_attention_heads", 32},       {"num_key_value_heads", 8},
             {"num_hidden_layers", 16},         {"head_dim", 64},
             {"max_position_embeddings", 4096}, {"rope_theta", 10000},
             {"vocab_size", vocabulary}}
            .dump();
    const auto diagnosis = Diagnose({input}, {});
    return std::any_of(diagnosis->findings.begin(), diagnosis->findings.end(),
                       [](const Finding& finding) {
                         return absl::string_view(finding.id) ==
                                "config.unlike-published";
                       });
  };
  EXPECT_TRUE(told(128256));
  EXPECT_TRUE(told(128264));
  EXPECT_FALSE(told(32000));
  EXPECT_FALSE(told(151936));
}

// The pairs of YaRN's ramp follow from the base: another base is no other
// scaling.
TEST(DoctorPublishedTest, AWrongBaseUnderYarnIsToldWithoutItsLength) {
  for (const json& published : Published()) {
    if (published["name"] != "openai/gpt-oss-20b") continue;
    json config = published["config"];
    config["rope_theta"] = 10000;
    config.erase("max_position_embeddings");
    DoctorInput input;
    input.path = "config.json";
    input.text = config.dump();
    const auto diagnosis = Diagnose({input}, {});
    ASSERT_TRUE(diagnosis.ok()) << diagnosis.status();
    EXPECT_TRUE(std::any_of(
        diagnosis->findings.begin(), diagnosis->findings.end(),
        [](const Finding& finding) {
          return absl::string_view(finding.id) == "config.unlike-published";
        }));
    return;
  }
  FAIL() << "the record has no gpt-oss 20B";
}

// Qwen3's card scales 32768 positions by 4. What scales them farther is no
// contradiction of it; a length that the model never had before it was scaled
// is one, and a factor that is not the ratio of the lengths is told by its own
// check.
TEST(DoctorPublishedTest, MoreScalingOfWhatWasPublishedIsNoFinding) {
  const auto told = [](double factor, double original, double length) {
    DoctorInput input;
    input.path = "config.json";
    input.text = json{{"model_type", "qwen3"},
                      {"hidden_size", 4096},
                      {"num_attention_heads", 32},
                      {"num_key_value_heads", 8},
                      {"num_hidden_layers", 36},
                      {"head_dim", 128},
                      {"max_position_embeddings", length},
                      {"rope_theta", 1000000},
                      {"rope_scaling",
                       {{"rope_type", "yarn"},
                        {"factor", factor},
                        {"original_max_position_embeddings", original}}}}
                     .dump();
    const auto diagnosis = Diagnose({input}, {});
    std::multiset<std::string> ids;
    for (const Finding& finding : diagnosis->findings) {
      ids.insert(finding.id);
    }
    return ids;
  };
  using Ids = std::multiset<std::string>;
  EXPECT_EQ(told(4, 32768, 131072), Ids{});
  EXPECT_EQ(told(8, 32768, 262144), Ids{});
  EXPECT_EQ(told(4, 65536, 262144), Ids{"config.unlike-published"});
  EXPECT_EQ(told(4, 32768, 262144), Ids{"config.factor-ratio"});
  EXPECT_EQ(told(4, 262144, 262144),
            (Ids{"config.factor-ratio", "config.length-not-raised",
                 "config.unlike-published"}));
}

}  // namespace
}  // namespace posenc::core
