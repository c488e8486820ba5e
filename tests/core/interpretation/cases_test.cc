// Reads configurations and GGUF files, and compares the results with the cases
// of tests/data/model (its README.md describes a case).

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/interpretation/classes/reading_rules.h"
#include "core/interpretation/formats/gguf_rope.h"
#include "core/interpretation/source.h"
#include "nlohmann/json.hpp"
#include "tests/fixtures/claims.h"
#include "tests/fixtures/model_fields.h"
#include "tests/fixtures/model_files.h"

namespace posenc::core::interpretation {
namespace {

using nlohmann::json;
using testing::HasSubstr;

// Keys of the input, and keys of the expectations.
const std::set<std::string>& Inputs() {
  static const auto& keys = *new std::set<std::string>{
      "config",        "profile",       "version", "layer_type",
      "layer_index",   "length",        "part",    "head_dim",
      "said_head_dim", "assume_length", "sliding"};
  return keys;
}
const std::set<std::string>& Expectations() {
  static const auto& keys = *new std::set<std::string>{
      "is",     "frequencies", "like",     "assumes",     "assumes_not",
      "warns",  "silent",      "warnings", "refused",     "field",
      "reason", "key",         "unsaid",   "assumptions", "gguf"};
  return keys;
}

const std::vector<test::Claim>& Claims() {
  static const auto& all = *new std::vector(test::LoadClaims("model"));
  return all;
}

Profile ProfileOf(const std::string& name) {
  const Reader* const reader = FindReader(name);
  EXPECT_NE(reader, nullptr) << name;
  return reader == nullptr ? Profile::kHf : reader->profile;
}

MissingLength MissingLengthOf(const json& read) {
  return read.value("assume_length", false) ? MissingLength::kAssumeOriginal
                                            : MissingLength::kError;
}

bool IsGguf(const json& read) {
  return read.at("config").contains("architecture");
}

absl::StatusOr<GgufRope> ReadGgufOf(const json& read) {
  const std::string bytes = GgufBytes(read.at("config"));
  const ByteSource source = SourceOf(bytes);
  const auto file = ReadGguf(source);
  if (!file.ok()) return file.status();
  return ReadGgufRope(*file, source);
}

absl::StatusOr<ResolvedRope> ResolvedGguf(const json& read) {
  const auto gguf = ReadGgufOf(read);
  if (!gguf.ok()) return gguf.status();
  auto rope = ResolveGguf(*gguf, read.value("length", 8192),
                          read.value("sliding", false));
  if (!rope.ok()) return rope;
  const absl::Status axes = SetGgufAxes(*gguf, &*rope);
  if (!axes.ok()) return axes;
  return rope;
}

absl::StatusOr<ResolvedRope> Resolved(const json& read) {
  if (IsGguf(read)) return ResolvedGguf(read);
  RopeSource source;
  const json& config = read.at("config");
  source.source = ConfigJson{config.is_string() ? config.get<std::string>()
                                                : config.dump()};
  source.profile = ProfileOf(read.value("profile", "hf"));
  source.profile_version = read.value("version", "");
  const std::string part = read.value("part", "");
  source.part = part == "text"      ? ModelPart::kText
                : part == "vision"  ? ModelPart::kVision
                : part == "audio"   ? ModelPart::kAudio
                : part == "indexer" ? ModelPart::kIndexer
                                    : ModelPart::kUnspecified;
  if (read.contains("layer_type")) source.layer_type = read["layer_type"];
  if (read.contains("layer_index")) source.layer_index = read["layer_index"];
  if (read.contains("length")) source.sequence_length = read["length"];
  source.head_dim = read.value("said_head_dim", 0);
  return ResolveSource(source, read.value("head_dim", 0),
                       MissingLengthOf(read));
}

// Expects equality up to one rounding of float64; whole numbers must be equal.
void ExpectNumber(const json& actual, const json& expected,
                  double relative = 0x1p-51) {
  ASSERT_TRUE(actual.is_number()) << actual << " against " << expected;
  const auto value = static_cast<double>(NumberOf(expected));
  EXPECT_NEAR(actual.get<double>(), value,
              expected.is_number_integer() ? 0 : std::abs(value) * relative);
}

// Checks only the expected keys of an object, or the expected indices of a
// list.
void ExpectFields(const json& actual, const json& expected) {
  if (expected.is_number() || IsFormula(expected)) {
    ExpectNumber(actual, expected);
  } else if (expected.is_object()) {
    for (const auto& [key, value] : expected.items()) {
      SCOPED_TRACE(key);
      if (actual.is_array()) {
        const std::size_t place = std::stoul(key);
        ASSERT_LT(place, actual.size());
        ExpectFields(actual[place], value);
      } else {
        ASSERT_TRUE(actual.contains(key)) << actual;
        ExpectFields(actual[key], value);
      }
    }
  } else if (expected.is_array()) {
    ASSERT_EQ(actual.size(), expected.size()) << actual << " " << expected;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      SCOPED_TRACE(i);
      ExpectFields(actual[i], expected[i]);
    }
  } else {
    EXPECT_EQ(actual, expected);
  }
}

void ExpectFrequencies(const ResolvedRope& rope, const json& formulas) {
  for (const json& of :
       formulas.is_array() ? formulas : json::array({formulas})) {
    const int size = static_cast<int>(rope.inv_freq.size());
    const int first = of.value("first", 0), last = of.value("last", size - 1);
    ASSERT_LE(first, last) << of;
    ASSERT_LT(last, size) << of;
    for (int i = first; i <= last; ++i) {
      SCOPED_TRACE(i);
      ExpectNumber(rope.inv_freq[i],
                   static_cast<double>(FrequencyOf(of, size, i)),
                   of.value("near", 0x1p-51));
    }
  }
}

void ExpectAssumptions(const ResolvedRope& rope, const json& read) {
  const auto find = [&rope](const std::string& field, const std::string& value,
                            const std::string& reason) {
    return std::any_of(rope.assumptions.begin(), rope.assumptions.end(),
                       [&](const Assumption& one) {
                         return one.field == field && one.value == value &&
                                one.reason.find(reason) != std::string::npos;
                       });
  };
  const json assumed = read.value("assumes", json::object());
  for (const auto& [field, value] : assumed.items()) {
    const bool has_reason = value.is_array();
    const std::string text = has_reason ? value[0] : value;
    const std::string reason = has_reason ? value[1] : json("");
    EXPECT_TRUE(find(field, text, reason)) << field << ": " << value;
  }
  const json not_assumed = read.value("assumes_not", json::object());
  for (const auto& [field, value] : not_assumed.items()) {
    EXPECT_FALSE(find(field, value, "")) << field << ": " << value;
  }
  if (read.contains("assumptions")) {
    std::vector<std::string> fields;
    for (const Assumption& one : rope.assumptions) fields.push_back(one.field);
    EXPECT_THAT(fields,
                testing::UnorderedElementsAreArray(
                    read["assumptions"].get<std::vector<std::string>>()));
  }
}

void ExpectWarnings(const ResolvedRope& rope, const json& read) {
  for (const json& text : read.value("warns", json::array())) {
    EXPECT_THAT(rope.warnings,
                testing::Contains(HasSubstr(text.get<std::string>())));
  }
  for (const json& text : read.value("silent", json::array())) {
    EXPECT_THAT(
        rope.warnings,
        testing::Not(testing::Contains(HasSubstr(text.get<std::string>()))));
  }
  if (read.contains("warnings")) {
    std::vector<testing::Matcher<std::string>> whole;
    for (const json& text : read["warnings"]) {
      whole.push_back(HasSubstr(text.get<std::string>()));
    }
    EXPECT_THAT(rope.warnings, testing::UnorderedElementsAreArray(whole));
  }
}

// Returns the fields of a GGUF file that do not describe the encoding of a
// layer.
json FieldsOf(const GgufRope& gguf) {
  constexpr const char* kPairings[] = {"unknown",     "none",
                                       "interleaved", "half",
                                       "sections",    "interleaved_sections"};
  json layers, mistyped = json::array();
  for (int layer = 0; layer < 4; ++layer) {
    layers.push_back(OrNull(gguf.RotatesLayer(layer)));
  }
  for (const MistypedKey& one : gguf.mistyped) {
    mistyped.push_back(one.key + " is " + one.is + " for " + one.wanted);
  }
  return {{"pairing", kPairings[static_cast<int>(gguf.pairing)]},
          {"rotates", gguf.rotates},
          {"rotates_in_windows_alone", gguf.RotatesInWindowsAlone()},
          {"rotates_layers", layers},
          {"layers_without_rope", gguf.LayersWithoutRope()},
          {"yarn_beta_fast", OrNull(gguf.yarn_beta_fast)},
          {"mistyped", mistyped}};
}

void ExpectDetails(const absl::Status& status, const json& read) {
  const auto details = GetErrorDetails(status);
  ASSERT_TRUE(details.has_value()) << status;
  EXPECT_EQ(details->field, read.value("field", "config_json"));
  EXPECT_EQ(details->reason,
            ReasonOf(read.value("reason", read.contains("field")
                                              ? "FIELD_INVALID"
                                              : "MODEL_CONFIG_INVALID")))
      << status;
  if (read.contains("key")) {
    std::string key;
    for (const auto& [name, value] : details->metadata) {
      if (name == "key") key = value;
    }
    EXPECT_EQ(key, read["key"].get<std::string>()) << status;
  }
}

void ExpectRefusal(const absl::Status& status, const json& read) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  if (!IsGguf(read)) ExpectDetails(status, read);
  const std::string message(status.message());
  const json& texts = read["refused"];
  for (const json& text : texts.is_array() ? texts : json::array({texts})) {
    EXPECT_THAT(message, HasSubstr(text.get<std::string>()));
  }
  for (const json& text : read.value("unsaid", json::array())) {
    EXPECT_THAT(message, testing::Not(HasSubstr(text.get<std::string>())));
  }
}

void ExpectRead(const json& models, const json& read) {
  const auto rope = Resolved(read);
  if (read.contains("refused")) {
    ExpectRefusal(rope.status(), read);
    return;
  }
  ASSERT_TRUE(rope.ok()) << rope.status();
  ExpectFields(FieldsOf(*rope), read.value("is", json::object()));
  ExpectFrequencies(*rope, read.value("frequencies", json::array()));
  ExpectAssumptions(*rope, read);
  ExpectWarnings(*rope, read);
  if (read.contains("gguf")) {
    ExpectFields(FieldsOf(*ReadGgufOf(read)), read["gguf"]);
  }
  // The resulting specification gives the same encoding.
  const auto again = ResolveSpec(
      rope->spec, rope->head_dim,
      read.contains("length")
          ? std::optional<std::int64_t>(read["length"].get<std::int64_t>())
          : std::nullopt,
      MissingLengthOf(read));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->inv_freq, rope->inv_freq);
  EXPECT_EQ(again->attention_factor, rope->attention_factor);
  if (!read.contains("like")) return;
  json other = read;
  other.update(read["like"]);
  test::MakeConfig(models, &other);
  const auto same = Resolved(other);
  ASSERT_TRUE(same.ok()) << same.status();
  EXPECT_EQ(rope->inv_freq, same->inv_freq);
}

class ConfigCaseTest : public testing::TestWithParam<std::size_t> {};

TEST_P(ConfigCaseTest, Holds) {
  const test::Claim& claim = Claims()[GetParam()];
  for (const json& read : test::ReadsOf(
           claim,
           {"profile", "length", "layer_type", "layer_index", "sliding"})) {
    SCOPED_TRACE(read.dump());
    bool expects = false;
    for (const auto& [key, value] : read.items()) {
      expects = expects || Expectations().count(key) > 0;
      EXPECT_TRUE(Inputs().count(key) + Expectations().count(key) > 0) << key;
    }
    EXPECT_TRUE(expects);
    ExpectRead(claim.models, read);
  }
}

INSTANTIATE_TEST_SUITE_P(, ConfigCaseTest,
                         testing::Range(std::size_t{0}, Claims().size()),
                         [](const testing::TestParamInfo<std::size_t>& info) {
                           return Claims()[info.param].name;
                         });

}  // namespace
}  // namespace posenc::core::interpretation
