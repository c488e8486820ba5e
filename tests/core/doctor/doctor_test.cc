// Doctor's rules that no pair of files tests: presets, lengths, readers.

#include "core/doctor/doctor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/tensor.h"
#include "core/doctor/readers.h"
#include "core/doctor/runtime.h"
#include "core/interpretation/presets.h"
#include "nlohmann/json.hpp"

namespace posenc::core::doctor {
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

TEST(DoctorPresetsTest, NoPresetHasAFalseError) {
  const json known_findings = json::parse(std::ifstream(
      std::string(POSENC_TEST_DATA) + "/doctor/known_findings.json"));
  const json& true_ones = known_findings["presets"];
  for (const interpretation::Preset& preset : interpretation::Presets()) {
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
      const bool known =
          std::any_of(true_ones.begin(), true_ones.end(), [&](const json& one) {
            return one["preset"] == std::string(preset.name) &&
                   one["id"] == finding.id;
          });
      EXPECT_TRUE(known) << preset.name << ": " << finding.id << " "
                         << finding.message;
    }
  }
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

// transformers' class scales a gpt-oss model even if the file has no scaling.
// Other readers need the scaling in the file.
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

TEST(DoctorSizeTest, SeverityFollowsTheKeptShareOfAScore) {
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

// Returns base^(-i/64) / factor in a dtype of 8 bits.
SavedTable Float8Table(Dtype dtype, double base, double factor = 1) {
  SavedTable table = {.name = "rope.freqs", .dtype = dtype};
  std::uint8_t bits = 0;
  for (int i = 0; i < 64; ++i) {
    StoreDouble(std::pow(base, -i / 64.0) / factor, {dtype, {1}, &bits}, 0);
    table.values.push_back(ElementAsDouble({dtype, {1}, &bits}, 0));
  }
  return table;
}

TEST(DoctorTablesTest, TablesOfEightBitsAreToldWhateverTheirBase) {
  DoctorInput saved;
  saved.path = "model.safetensors";
  saved.kind = InputKind::kSafetensors;
  const auto rounded = [&](const SavedTable& table,
                           std::vector<DoctorInput> inputs = {}) {
    saved.tables = {table};
    inputs.push_back(saved);
    const auto diagnosis = Diagnose(inputs, {});
    EXPECT_TRUE(diagnosis.ok()) << diagnosis.status();
    const Finding* const one = Find(*diagnosis, "tables.inv-freq-rounded");
    const Finding* const other = Find(*diagnosis, "tables.inv-freq-differs");
    return absl::StrCat(one == nullptr ? "" : one->message, "; ",
                        other == nullptr ? "" : other->message);
  };
  EXPECT_THAT(rounded(Float8Table(Dtype::kFloat8E4m3fn, 5e5)),
              HasSubstr("float8_e4m3fn: 30 of 64 frequencies are 0, and the "));
  EXPECT_THAT(rounded(Float8Table(Dtype::kFloat8E5m2, 700, 0.3)),
              HasSubstr("0 of 64 frequencies are 0, those of 2^-14 or more are "
                        "up to 12.5 % off"));
  json config = Plain();
  config["head_dim"] = 128;
  config["rope_theta"] = 10000.0;
  EXPECT_THAT(rounded(Float8Table(Dtype::kFloat8E4m3fn, 5e5), {Config(config)}),
              testing::AllOf(HasSubstr("30 of 64 frequencies are 0"),
                             HasSubstr("gives base 500000")));
}

TEST(DoctorTablesTest, AFixNamesTheKeyOfTheTablesLayer) {
  SavedTable table = {.name = "model.layers.0.self_attn.rotary_emb.inv_freq"};
  for (int i = 0; i < 32; ++i) table.values.push_back(std::pow(1e6, -i / 32.0));
  DoctorInput saved;
  saved.path = "model.safetensors";
  saved.kind = InputKind::kSafetensors;
  saved.tables = {table,
                  {.name = "model.layers.1.self_attn.rotary_emb.inv_freq"}};
  const json config = {
      {"model_type", "gemma3_text"}, {"hidden_size", 512},
      {"num_attention_heads", 8},    {"head_dim", 64},
      {"num_hidden_layers", 6},      {"max_position_embeddings", 4096}};
  const auto diagnosis = Diagnose({Config(config), saved}, {});
  ASSERT_TRUE(diagnosis.ok()) << diagnosis.status();
  const Finding* const differs = Find(*diagnosis, "tables.inv-freq-differs");
  ASSERT_NE(differs, nullptr);
  EXPECT_THAT(differs->fix, HasSubstr("set \"rope_local_base_freq\": 1000000"));
  const Finding* const empty = Find(*diagnosis, "tables.inv-freq-layers");
  ASSERT_NE(empty, nullptr);
  EXPECT_THAT(
      empty->message,
      HasSubstr("layers.1.self_attn.rotary_emb.inv_freq has no values"));
}

TEST(DoctorBadInputTest, OnlyTheFirstOfThousandsOfKeysAreReported) {
  json config = Plain();
  for (int i = 0; i < 1000; ++i) config[absl::StrCat("rope_", i)] = 1;
  EXPECT_LT(Diagnosed(config).findings.size(), 100);
}

TEST(DoctorBadInputTest, OnlyTheFirstOfThousandsOfRopesAreCompared) {
  json config = Plain();
  config["model_type"] = "not_known_here";
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

TEST(DoctorBadInputTest, PartsThatAreNoObjectsEndNothing) {
  const json flux = {{"_class_name", "FluxTransformer2DModel"},
                     {"attention_head_dim", 128},
                     {"num_attention_heads", 24},
                     {"axes_dims_rope", {16, 56, 56}}};
  for (json config : {Plain(), flux}) {
    for (const json& part : {json("x"), json({1}), json(7)}) {
      config["text_config"] = part;
      Diagnosed(config);
    }
  }
  Diagnosed({{"a", {1}}, {"a.99999999999999999999999", Plain()}});
}

// The values are separated by commas (llama.cpp PR 18056).
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

TEST(DoctorRuntimeTest, TheValueOfAnUnknownFlagNamesNoEngine) {
  const auto runtime =
      ParseRuntime("--model /models/llama-3-vllm --rope-theta 5e5");
  ASSERT_TRUE(runtime.ok()) << runtime.status();
  EXPECT_EQ(runtime->engine, Runtime::Engine::kUnknown);
}

TEST(DoctorRuntimeTest, NanInAnOverrideIsRefused) {
  const auto runtime = ParseRuntime(
      R"(vllm serve m --hf-overrides '{"rope_theta":NaN}' --hf-overrides.a 1)");
  EXPECT_THAT(runtime.status().message(), HasSubstr("no JSON object"));
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
  EXPECT_THAT(JsonFault(""), HasSubstr("not JSON: it is empty"));
  for (const char* start : {"", "[NaN,"}) {
    EXPECT_THAT(JsonFault(start + std::string(10000, '[')),
                HasSubstr("nested deeper"));
  }
  EXPECT_THAT(JsonFault(std::string(2 << 20, ' ')), HasSubstr("bytes"));
  EXPECT_EQ(JsonFault(std::string("{}\n\0{}", 6)),
            "not JSON: line 2, column 1");
}

}  // namespace
}  // namespace posenc::core::doctor
