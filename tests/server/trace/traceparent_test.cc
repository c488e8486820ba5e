#include "server/trace/traceparent.h"

#include <string>

#include "gmock/gmock.h"

namespace posenc::server {
namespace {

using testing::ElementsAre;

// The specification's own example.
constexpr char kExample[] =
    "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

TEST(ParseTraceparent, ReadsTheSpecificationsExample) {
  const auto parsed = ParseTraceparent(kExample);
  ASSERT_TRUE(parsed.has_value());
  EXPECT_THAT(parsed->trace_id,
              ElementsAre(0x4b, 0xf9, 0x2f, 0x35, 0x77, 0xb3, 0x4d, 0xa6, 0xa3,
                          0xce, 0x92, 0x9d, 0x0e, 0x0e, 0x47, 0x36));
  EXPECT_THAT(parsed->parent_id,
              ElementsAre(0x00, 0xf0, 0x67, 0xaa, 0x0b, 0xa9, 0x02, 0xb7));
  EXPECT_TRUE(parsed->sampled);
}

TEST(ParseTraceparent, TheFirstFlagSaysWhetherItIsSampled) {
  std::string text = kExample;
  for (const auto& [flags, sampled] :
       {std::pair<const char*, bool>{"00", false},
        {"02", false},
        {"03", true},
        {"ff", true}}) {
    text.replace(53, 2, flags);
    const auto parsed = ParseTraceparent(text);
    ASSERT_TRUE(parsed.has_value()) << flags;
    EXPECT_EQ(parsed->sampled, sampled) << flags;
  }
}

TEST(ParseTraceparent, RefusesMalformedTexts) {
  const std::string example = kExample;
  for (std::size_t size = 0; size < example.size(); ++size) {
    EXPECT_FALSE(ParseTraceparent(example.substr(0, size))) << size;
  }
  for (const char* text :
       {"00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
        "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
        "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0g",
        "00-4bf92f3577b34da6a3ce929d0e0e4736_00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more"}) {
    EXPECT_FALSE(ParseTraceparent(text)) << text;
  }
}

TEST(ParseTraceparent, LaterVersionsMayHaveMore) {
  std::string text = kExample;
  text.replace(0, 2, "01");
  EXPECT_TRUE(ParseTraceparent(text));
  EXPECT_TRUE(ParseTraceparent(text + "-more"));
  EXPECT_FALSE(ParseTraceparent(text + "more"));
}

TEST(TraceIdText, IsTheIdsDigitsOfAValidTextAlone) {
  EXPECT_EQ(TraceIdText(kExample), "4bf92f3577b34da6a3ce929d0e0e4736");
  const std::string example = kExample;
  EXPECT_EQ(TraceIdText(example + "-more"), "");
  EXPECT_EQ(TraceIdText("01" + example.substr(2) + "-more"),
            "4bf92f3577b34da6a3ce929d0e0e4736");
  EXPECT_EQ(TraceIdText(""), "");
  EXPECT_EQ(TraceIdText("00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-"
                        "01"),
            "");
}

}  // namespace
}  // namespace posenc::server
