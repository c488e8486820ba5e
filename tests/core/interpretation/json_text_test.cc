// Properties of a text that are lost when it is parsed as JSON
// (core/interpretation/json_object.h).

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "core/interpretation/json_object.h"

namespace posenc::core::interpretation {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

JsonText TextOf(absl::string_view text) { return ParseText(text).text; }

TEST(JsonTextTest, NotesBothValuesOfAKeyThatStandsTwice) {
  const JsonText text =
      TextOf(R"({"a":1,"b":{"c":"x","c":[2],"d":null},"a":2.5})");
  ASSERT_THAT(text.twice, SizeIs(2));
  EXPECT_EQ(text.twice[0].path, "b.c");
  EXPECT_EQ(text.twice[0].first, "\"x\"");
  EXPECT_EQ(text.twice[0].last, "a list");
  EXPECT_EQ(text.twice[1].path, "a");
  EXPECT_EQ(text.twice[1].first, "1");
  EXPECT_EQ(text.twice[1].last, "2.5");
  EXPECT_THAT(text.fault, IsEmpty());
}

TEST(JsonTextTest, EqualKeysOfDifferentObjectsAreNotTwice) {
  EXPECT_THAT(
      TextOf(R"({"a":{"x":1},"b":{"x":1},"c":[{"x":1},{"x":2}]})").twice,
      IsEmpty());
}

TEST(JsonTextTest, NotesIntegersThatInt64DoesNotHold) {
  const JsonText text = TextOf(
      R"({"a":9223372036854775807,"b":9223372036854775808,)"
      R"("c":-9223372036854775808,"d":-9223372036854775809,)"
      R"("e":100000000000000000000,"f":1e20,"g":100000000000000000000.0})");
  ASSERT_THAT(text.long_integers, SizeIs(3));
  EXPECT_EQ(text.long_integers[0].path, "b");
  EXPECT_EQ(text.long_integers[0].digits, "9223372036854775808");
  EXPECT_EQ(text.long_integers[1].path, "d");
  EXPECT_EQ(text.long_integers[1].digits, "-9223372036854775809");
  EXPECT_EQ(text.long_integers[2].path, "e");
}

TEST(JsonTextTest, TakesWordsForNumbersThatAreNotFinite) {
  const JsonText text = TextOf(R"({"a":NaN,"b":-Infinity,"a":1})");
  EXPECT_THAT(text.fault, IsEmpty());
  ASSERT_THAT(text.twice, SizeIs(1));
  EXPECT_EQ(text.twice[0].first, "\"NaN\"");
}

TEST(JsonTextTest, ReportsWhereTheTextStopsBeingJson) {
  EXPECT_THAT(TextOf(R"({"a":1,})").fault, HasSubstr("at byte 8"));
  EXPECT_THAT(TextOf(R"({"a" 1})").fault, HasSubstr("at byte 6"));
  EXPECT_THAT(TextOf("").fault, HasSubstr("is empty"));
  EXPECT_THAT(TextOf(" \n").fault, HasSubstr("is empty"));
}

TEST(JsonTextTest, NamesAZeroByte) {
  EXPECT_THAT(TextOf(std::string("{}\0", 3)).fault,
              HasSubstr("byte 3 is zero"));
}

TEST(JsonTextTest, NamesANumberThatNoFloatHolds) {
  const JsonText text = TextOf(R"({"a":{"b":1e400}})");
  EXPECT_EQ(text.fault_path, "a.b");
  EXPECT_EQ(text.fault,
            "is 1e400, which no float64 holds; give one that is finite");
}

TEST(JsonTextTest, TellsEightOfManyFaults) {
  std::string keys;
  for (int i = 0; i < 40; ++i) absl::StrAppend(&keys, R"("a":1,)");
  EXPECT_THAT(TextOf(absl::StrCat("{", keys, R"("b":2})")).twice, SizeIs(8));
}

}  // namespace
}  // namespace posenc::core::interpretation
