// Types of the fields of transformers' classes (core/model/class_fields.h).

#include "core/model/class_fields.h"

#include <gtest/gtest.h>

namespace posenc::core {
namespace {

using nlohmann::json;

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
  EXPECT_TRUE(IsOfType(8, "int|null", false));
  EXPECT_TRUE(IsOfType(nullptr, "int|null", false));
  EXPECT_FALSE(IsOfType(8.0, "int", false));
  EXPECT_FALSE(IsOfType(1, "float", false));
  EXPECT_FALSE(IsOfType(true, "int", false));
  EXPECT_TRUE(IsOfType(0.5, "unit", false));
  EXPECT_FALSE(IsOfType(1.5, "unit", false));
  EXPECT_TRUE(IsOfType(1, "positive", false));
  EXPECT_FALSE(IsOfType(0, "positive", false));
  EXPECT_TRUE(IsOfType("relu2", "=relu2", false));
  EXPECT_FALSE(IsOfType("relu", "=relu2", false));
  EXPECT_TRUE(IsOfType(json::object(), "null|{qwen3}", false));
  EXPECT_TRUE(IsOfType(nullptr, "int|listed", true));
  EXPECT_FALSE(IsOfType(nullptr, "int|listed", false));
}

TEST(ClassFieldsTest, ElementsOfArraysHaveTypes) {
  EXPECT_TRUE(IsOfType({1, 2}, "int|list[int]", false));
  EXPECT_TRUE(IsOfType(json::array(), "list[int]", false));
  EXPECT_FALSE(IsOfType({1, "a"}, "int|list[int]", false));
  EXPECT_TRUE(IsOfType({1, "a"}, "list|null", false));
  // Files spell infinity as a bare word, or as an object.
  EXPECT_TRUE(IsOfType({0.0, "Infinity"}, "list[float]", false));
  EXPECT_TRUE(IsOfType(json::array({0.0, {{"__float__", "Infinity"}}}),
                       "list[float]", false));
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
