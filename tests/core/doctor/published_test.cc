// Doctor on the configurations of published models, tests/data/parity: all of
// its findings were checked by hand.

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/doctor/doctor.h"
#include "nlohmann/json.hpp"

namespace posenc::core::doctor {
namespace {

using nlohmann::json;

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

Diagnosis Diagnosed(const json& config) {
  DoctorInput input;
  input.path = "config.json";
  input.text = config.dump();
  auto diagnosis = Diagnose({input}, {});
  EXPECT_TRUE(diagnosis.ok()) << diagnosis.status();
  return diagnosis.ok() ? *std::move(diagnosis) : Diagnosis();
}

// Returns the ids of the findings.
std::multiset<std::string> Told(const json& config) {
  std::multiset<std::string> ids;
  for (const Finding& finding : Diagnosed(config).findings) {
    ids.insert(finding.id);
  }
  return ids;
}

// The errors and warnings that doctor rightly reports for presets and published
// models, and the models that have no rotation.
json Known() {
  std::ifstream file(std::string(POSENC_TEST_DATA) +
                     "/doctor/known_findings.json");
  return json::parse(file);
}

TEST(DoctorPublishedTest, FindingsAboutPublishedConfigurationsAreKnown) {
  using Row = std::tuple<std::string, std::string, std::string>;
  const json known = Known();
  std::set<Row> unseen;
  for (const json& row : known["published"]) {
    for (const json& model : row["models"]) {
      unseen.emplace(model, row["id"], row["severity"]);
    }
  }
  const std::set<Row> true_rows = unseen;
  EXPECT_GE(Published().size(), 514);
  for (const json& published : Published()) {
    const auto name = published["name"].get<std::string>();
    const Diagnosis diagnosis = Diagnosed(published["config"]);
    const json& still = known["without_rope"];
    EXPECT_EQ(diagnosis.unreadable(),
              std::count(still.begin(), still.end(), json(name)) == 1)
        << name << ": " << diagnosis.inputs[0].unreadable;
    for (const Finding& finding : diagnosis.findings) {
      if (finding.severity == Severity::kNote) continue;
      const Row row = {name, finding.id,
                       std::string(SeverityName(finding.severity))};
      EXPECT_EQ(true_rows.count(row), 1)
          << name << ": " << SeverityName(finding.severity) << " " << finding.id
          << " " << finding.message;
      unseen.erase(row);
    }
  }
  for (const auto& [name, id, severity] : unseen) {
    ADD_FAILURE() << name << ": " << id << " is no longer told";
  }
}

// Beside the presets, doctor knows the models of core/doctor/published.jsonl.
// The configurations in that file must equal the record of published
// configurations.
TEST(DoctorPublishedTest, ConfigurationsBesideThePresetsAreThoseOfTheRecord) {
  std::map<std::string, json> record;
  for (const json& published : Published()) {
    record[published["name"]] = published["config"];
    record[published["name"]].erase("vision_config");
  }
  const std::vector<json> known = Lines(std::string(POSENC_TEST_DATA) +
                                        "/../../core/doctor/published.jsonl");
  EXPECT_FALSE(known.empty());
  for (const json& model : known) {
    EXPECT_EQ(model["config"], record[model["name"]]) << model["name"];
  }
}

// A rewritten file without base, scaling and length gets all three from the
// class. It is still the same model.
TEST(DoctorPublishedTest, ModelsThatLostBaseScalingAndLengthAreTold) {
  const std::map<std::string, bool> models = {
      {"meta-llama/Llama-3.1-8B-Instruct", true},
      {"meta-llama/Llama-3.2-1B-Instruct", true},
      {"NousResearch/Hermes-3-Llama-3.1-405B", true},
      {"LGAI-EXAONE/EXAONE-4.0-32B", true},
      {"google/gemma-3-27b-it", true},
      // Without these values they look like Llama 2, which is no error.
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
      // For some models, the record has the vocab_size of the class instead of
      // the model's own. With it, doctor would take the file for another model.
      part.erase("vocab_size");
      if (length > 0) part["max_position_embeddings"] = length;
      EXPECT_EQ(Told(config).count("config.unlike-published") > 0,
                model->second)
          << model->first << ", length " << length;
    }
  }
  EXPECT_EQ(seen, models.size());
}

// YaRN's ramp depends on the base. A wrong base must not count as another
// scaling.
TEST(DoctorPublishedTest, AWrongBaseUnderYarnIsToldWithoutItsLength) {
  for (const json& published : Published()) {
    if (published["name"] != "openai/gpt-oss-20b") continue;
    json config = published["config"];
    config["rope_theta"] = 10000;
    config.erase("max_position_embeddings");
    EXPECT_EQ(Told(config).count("config.unlike-published"), 1);
    return;
  }
  FAIL() << "the record has no gpt-oss 20B";
}

}  // namespace
}  // namespace posenc::core::doctor
