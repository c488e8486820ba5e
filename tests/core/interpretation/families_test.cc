// The tables of model types (core/interpretation/classes/families.h,
// class_defaults.h).

#include "core/interpretation/classes/families.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "absl/strings/str_split.h"
#include "core/interpretation/classes/class_defaults.h"
#include "nlohmann/json.hpp"

namespace posenc::core::interpretation {
namespace {

TEST(FamiliesTest, TypesAreSpelledInManyWays) {
  for (const char* type : {"qwen3_vl_text", "qwen3-vl", "qwen3 vl"}) {
    EXPECT_EQ(FindFamily(type).head_dim, 128);
    EXPECT_TRUE(FindFamily(type).known()) << type;
  }
  EXPECT_FALSE(FindFamily("no such model").known());
}

// Both tables give the same head_dim to a class that states its head_dim.
TEST(FamiliesTest, AgreeWithTheClassesAboutHeads) {
  for (const Family& family : Families()) {
    if (family.width == RotaryWidth::kMla || family.remote) continue;
    for (const absl::string_view type :
         absl::StrSplit(family.model_types, ' ')) {
      const ClassDefaults* row = FindClassDefaults(type);
      if (row == nullptr || row->head_dim == 0 || family.head_dim == 0) {
        continue;
      }
      EXPECT_EQ(row->head_dim, family.head_dim) << type;
    }
  }
}

}  // namespace
}  // namespace posenc::core::interpretation
