// Untrusted text in messages.

#include "core/base/text.h"

#include "gtest/gtest.h"

namespace posenc::core {
namespace {

TEST(OneLine, EscapesControlsAndCutsBetweenCharacters) {
  EXPECT_EQ(OneLine("a\nb\x7f"), "a\\nb\\x7f");
  EXPECT_EQ(OneLine("caf\xC3\xA9"), "caf\xC3\xA9");
  EXPECT_EQ(OneLine("abcdef", 6), "abcdef");
  EXPECT_EQ(OneLine("abcdefg", 6), "abc...");
  EXPECT_EQ(OneLine("ab\xC3\xA9"
                    "defg",
                    6),
            "ab...");
}

TEST(EditDistance, CountsChangesOfLetters) {
  EXPECT_EQ(EditDistance("", ""), 0);
  EXPECT_EQ(EditDistance("", "abc"), 3);
  EXPECT_EQ(EditDistance("apply", "apply"), 0);
  EXPECT_EQ(EditDistance("aply", "apply"), 1);
  EXPECT_EQ(EditDistance("applly", "apply"), 1);
  EXPECT_EQ(EditDistance("appky", "apply"), 1);
  EXPECT_EQ(EditDistance("aplpy", "apply"), 1);
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3);
}

}  // namespace
}  // namespace posenc::core
