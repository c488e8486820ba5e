// Doctor on one configuration, by the cases of tests/data/doctor_rules:
// expected and absent findings, and their texts.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "core/doctor/doctor.h"
#include "nlohmann/json.hpp"
#include "tests/fixtures/claims.h"

namespace posenc::core::doctor {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;
using Texts = std::vector<std::string>;

const std::vector<test::Claim>& Claims() {
  static const auto& all = *new std::vector(test::LoadClaims("doctor_rules"));
  return all;
}

void ExpectParts(const json& parts, const std::string& text) {
  for (const json& part : parts) {
    EXPECT_THAT(text, HasSubstr(part.get<std::string>()));
  }
}

// Expects a finding. If several findings have the id, takes the first finding
// whose message contains the first part of "message". `expected` is {"id",
// parts of "message" and "fix", "not_in_fix", "severity" or "not_severity",
// names of all "readers"}.
void ExpectFinding(const Diagnosis& diagnosis, const json& expected) {
  const Finding* found = nullptr;
  const Texts parts = expected.value("message", Texts());
  for (const Finding& finding : diagnosis.findings) {
    if (finding.id == expected["id"].get<std::string>() && found == nullptr &&
        (parts.empty() || absl::StrContains(finding.message, parts[0]))) {
      found = &finding;
    }
  }
  ASSERT_NE(found, nullptr) << expected;
  ExpectParts(expected.value("message", json::array()), found->message);
  ExpectParts(expected.value("fix", json::array()), found->fix);
  for (const json& part : expected.value("not_in_fix", json::array())) {
    EXPECT_THAT(found->fix, Not(HasSubstr(part.get<std::string>())));
  }
  const std::string severity(SeverityName(found->severity));
  EXPECT_EQ(severity, expected.value("severity", severity));
  EXPECT_NE(severity, expected.value("not_severity", ""));
  if (!expected.contains("readers")) return;
  Texts names;
  for (const auto& reader : found->readers) names.emplace_back(reader.name);
  EXPECT_EQ(names, expected["readers"].get<Texts>());
}

void ExpectDiagnosis(const Diagnosis& diagnosis, const json& read) {
  std::multiset<std::string> ids;
  for (const Finding& finding : diagnosis.findings) {
    ids.insert(finding.id);
    for (const json& part : read.value("silent", json::array())) {
      EXPECT_THAT(finding.message, Not(HasSubstr(part.get<std::string>())));
    }
  }
  for (const json& id : read.value("finds", json::array())) {
    EXPECT_GT(ids.count(id.get<std::string>()), 0u) << id;
  }
  for (const json& id : read.value("lacks", json::array())) {
    EXPECT_EQ(ids.count(id.get<std::string>()), 0u) << id;
  }
  if (read.contains("all")) {
    EXPECT_EQ(ids, read["all"].get<std::multiset<std::string>>());
  }
  if (read.contains("finding")) ExpectFinding(diagnosis, read["finding"]);
  EXPECT_EQ(diagnosis.length, read.value("looks_to", diagnosis.length));
  ExpectParts(read.value("spec", json::array()), diagnosis.inputs[0].spec);
  EXPECT_EQ(diagnosis.unreadable(), read.contains("unreadable"));
  EXPECT_THAT(diagnosis.inputs[0].unreadable,
              HasSubstr(read.value("unreadable", "")));
}

void ExpectRead(const json& read) {
  DoctorInput input;
  input.path = "config.json";
  const json& config = read.at("config");
  input.text = config.is_string() ? config.get<std::string>() : config.dump();
  DoctorOptions options;
  options.readers = read.value("readers", Texts());
  if (read.contains("length")) options.length = read["length"];
  options.runtime = read.value("runtime", "");
  const auto diagnosis = Diagnose({input}, options);
  if (read.contains("refused")) {
    EXPECT_THAT(std::string(diagnosis.status().message()),
                HasSubstr(read["refused"].get<std::string>()));
    return;
  }
  ASSERT_TRUE(diagnosis.ok()) << diagnosis.status();
  ExpectDiagnosis(*diagnosis, read);
}

class DoctorRulesTest : public testing::TestWithParam<std::size_t> {};

TEST_P(DoctorRulesTest, Holds) {
  const std::set<std::string> inputs = {"config", "readers", "length",
                                        "runtime"};
  const std::set<std::string> expectations = {
      "finds", "lacks",    "all",     "finding",   "silent",
      "spec",  "looks_to", "refused", "unreadable"};
  for (const json& read : test::ReadsOf(Claims()[GetParam()], {})) {
    SCOPED_TRACE(read.dump());
    bool expects = false;
    for (const auto& [key, value] : read.items()) {
      expects = expects || expectations.count(key) > 0;
      EXPECT_TRUE(inputs.count(key) + expectations.count(key) > 0) << key;
    }
    EXPECT_TRUE(expects);
    ExpectRead(read);
  }
}

INSTANTIATE_TEST_SUITE_P(, DoctorRulesTest,
                         testing::Range(std::size_t{0}, Claims().size()),
                         [](const testing::TestParamInfo<std::size_t>& info) {
                           return Claims()[info.param].name;
                         });

}  // namespace
}  // namespace posenc::core::doctor
