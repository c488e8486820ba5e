// Types of the fields of transformers' classes (core/model/class_fields.h).

#include "core/model/class_fields.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace posenc::core {
namespace {

using nlohmann::json;

using Words = std::vector<std::string>;

// A line of class_fields.txt that is no comment, and its number.
struct Line {
  int number = 0;
  std::string text;
};

std::vector<Line> LinesOfRows() {
  std::ifstream file(POSENC_TEST_DATA "/../../core/model/class_fields.txt");
  std::vector<Line> lines;
  int number = 0;
  for (std::string text; std::getline(file, text);) {
    ++number;
    if (!absl::StartsWith(text, "#")) lines.push_back({number, text});
  }
  return lines;
}

bool AreInOrder(const Words& words) {
  return std::is_sorted(words.begin(), words.end()) &&
         std::adjacent_find(words.begin(), words.end()) == words.end();
}

// True for an alternative that class_fields.h explains.
bool IsExplained(absl::string_view type) {
  static const auto& simple = *new std::set<absl::string_view>{
      "int",  "float",   "bool",    "str",  "null", "positive",
      "unit", "natural", "nonzero", "true", "false"};
  const std::pair<absl::string_view, absl::string_view> beside =
      absl::StrSplit(type, absl::MaxSplits('@', 1));
  if (!beside.second.empty()) {
    return beside.first == "any" || IsExplained(beside.first);
  }
  if (simple.contains(type) || type == "list") return true;
  if (absl::ConsumePrefix(&type, "=")) return true;
  if (absl::ConsumePrefix(&type, "{")) return absl::EndsWith(type, "}");
  if (!absl::ConsumePrefix(&type, "list[")) return false;
  if (!absl::ConsumeSuffix(&type, "]")) return false;
  const std::vector<absl::string_view> elements = absl::StrSplit(type, ',');
  return std::all_of(
      elements.begin(), elements.end(),
      [](absl::string_view one) { return simple.contains(one); });
}

TEST(ClassFieldsTest, EachLineIsATypeItsKeysAndItsModelTypes) {
  const std::vector<Line> lines = LinesOfRows();
  ASSERT_GT(lines.size(), 100u);
  const Words model_types = absl::StrSplit(lines[0].text, ' ');
  EXPECT_GT(model_types.size(), 300u);
  EXPECT_TRUE(AreInOrder(model_types));
  for (std::size_t i = 1; i < lines.size(); ++i) {
    SCOPED_TRACE(lines[i].number);
    const Words columns = absl::StrSplit(lines[i].text, '\t');
    ASSERT_EQ(columns.size(), 3u);
    for (const absl::string_view type :
         absl::StrSplit(absl::StripPrefix(columns[0], "!"), '|')) {
      EXPECT_TRUE(IsExplained(type)) << type;
    }
    EXPECT_TRUE(AreInOrder(absl::StrSplit(columns[1], ' ')));
    const Words some = absl::StrSplit(columns[2], ' ', absl::SkipEmpty());
    // A type is looked for by bisection.
    EXPECT_TRUE(AreInOrder(some));
    for (const std::string& one : some) {
      EXPECT_TRUE(
          std::binary_search(model_types.begin(), model_types.end(), one))
          << one;
    }
  }
}

TEST(ClassFieldsTest, AKeyOfAModelTypeHasOneLine) {
  const std::vector<Line> lines = LinesOfRows();
  ASSERT_FALSE(lines.empty());
  const Words model_types = absl::StrSplit(lines[0].text, ' ');
  std::map<std::pair<std::string, std::string>, int> first;
  for (std::size_t i = 1; i < lines.size(); ++i) {
    const Words columns = absl::StrSplit(lines[i].text, '\t');
    ASSERT_EQ(columns.size(), 3u) << lines[i].number;
    const bool but = absl::StartsWith(columns[0], "!");
    const Words some = absl::StrSplit(columns[2], ' ', absl::SkipEmpty());
    for (const std::string& type : model_types) {
      if (std::binary_search(some.begin(), some.end(), type) == but) continue;
      for (const absl::string_view key : absl::StrSplit(columns[1], ' ')) {
        const auto [it, is_new] =
            first.try_emplace({type, std::string(key)}, lines[i].number);
        EXPECT_TRUE(is_new) << type << " " << key << ": lines " << it->second
                            << " and " << lines[i].number;
      }
    }
  }
}

TEST(ClassFieldsTest, TypesAreThoseOfTheClass) {
  EXPECT_EQ(FieldType("llama", "hidden_size"), "int");
  EXPECT_EQ(FieldType("llama", "pad_token_id"), "int|null");
  EXPECT_EQ(FieldType("llama", "rms_norm_eps"), "float");
  EXPECT_EQ(FieldType("gemma3_text", "query_pre_attn_scalar"), "int");
  // By its class's other name for the key.
  EXPECT_EQ(FieldType("gptj", "hidden_size"), "int");
}

TEST(ClassFieldsTest, OfOtherKeysAndClassesNothingIsKnown) {
  EXPECT_EQ(FieldType("llama", "moe_intermediate_size"), "");
  EXPECT_EQ(FieldType("llama", "rope_theta"), "");
  EXPECT_EQ(FieldType("chatglm", "hidden_size"), "");
  EXPECT_EQ(FieldType("", "hidden_size"), "");
}

TEST(ClassFieldsTest, PartsHaveTypesOfTheirOwn) {
  EXPECT_EQ(TypeOfPart(FieldType("qwen3_vl", "text_config")), "qwen3_vl_text");
  EXPECT_EQ(TypeOfPart(FieldType("llama", "rope_parameters")), "");
}

TEST(ClassFieldsTest, AValueIsOfATypeByItsAlternatives) {
  EXPECT_TRUE(IsOfType(8, "int|null"));
  EXPECT_TRUE(IsOfType(nullptr, "int|null"));
  EXPECT_FALSE(IsOfType(8.0, "int"));
  EXPECT_FALSE(IsOfType(1, "float"));
  EXPECT_FALSE(IsOfType(true, "int"));
  EXPECT_TRUE(IsOfType(0.5, "unit"));
  EXPECT_FALSE(IsOfType(1.5, "unit"));
  EXPECT_TRUE(IsOfType(1, "positive"));
  EXPECT_FALSE(IsOfType(0, "positive"));
  EXPECT_TRUE(IsOfType(0, "natural"));
  EXPECT_FALSE(IsOfType(-1, "natural"));
  EXPECT_TRUE(IsOfType(-1, "nonzero"));
  EXPECT_FALSE(IsOfType(0, "nonzero"));
  EXPECT_TRUE(IsOfType(false, "false"));
  EXPECT_FALSE(IsOfType(true, "false"));
  EXPECT_TRUE(IsOfType("relu2", "=relu2"));
  EXPECT_FALSE(IsOfType("relu", "=relu2"));
  EXPECT_TRUE(IsOfType(json::object(), "null|{qwen3}"));
}

TEST(ClassFieldsTest, AListOfLayersAllowsWhatTheClassThenDoesNotRead) {
  const json without = {{"layer_types", nullptr}};
  const json with = {{"layer_types", {"full_attention"}}};
  absl::Status status;
  const JsonObject unlisted(&without, "", &status);
  const JsonObject listed(&with, "", &status);
  EXPECT_EQ(TypeInFile("nonzero|int@layer_types", unlisted), "nonzero");
  EXPECT_EQ(TypeInFile("nonzero|int@layer_types", listed), "nonzero|int");
  EXPECT_EQ(TypeInFile("int|null@moe_layers", listed), "int");
  EXPECT_EQ(TypeInFile("int|any@layer_types", unlisted), "int");
  EXPECT_EQ(TypeInFile("int|any@layer_types", listed), "");
  EXPECT_EQ(TypeInWords("int|null@layer_types"),
            "an integer or null beside layer_types");
  EXPECT_EQ(TypeInWords("int|any@layer_types"),
            "an integer or any value beside layer_types");
}

TEST(ClassFieldsTest, ElementsOfArraysHaveTypes) {
  EXPECT_TRUE(IsOfType({1, 2}, "int|list[int]"));
  EXPECT_TRUE(IsOfType(json::array(), "list[int]"));
  EXPECT_FALSE(IsOfType({1, "a"}, "int|list[int]"));
  EXPECT_TRUE(IsOfType({1, "a"}, "list|null"));
  // Files spell infinity as a bare word, or as an object.
  EXPECT_TRUE(IsOfType({0.0, "Infinity"}, "list[float]"));
  EXPECT_TRUE(
      IsOfType(json::array({0.0, {{"__float__", "Infinity"}}}), "list[float]"));
}

TEST(ClassFieldsTest, WordsSayTheAlternatives) {
  EXPECT_EQ(TypeInWords("int|null"), "an integer or null");
  EXPECT_EQ(TypeInWords("float|int"), "a number");
  EXPECT_EQ(TypeInWords("float"), "a number with a point");
  EXPECT_EQ(TypeInWords("int|list[int]|null"),
            "an integer or an array, each element an integer or null");
  EXPECT_EQ(TypeInWords("=cls|=mean"), "\"cls\" or \"mean\"");
}

}  // namespace
}  // namespace posenc::core
