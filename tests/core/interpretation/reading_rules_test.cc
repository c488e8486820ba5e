// The rows of differences between readers, and the comparison of versions
// (core/interpretation/classes/reading_rules.h).

#include "core/interpretation/classes/reading_rules.h"

#include <gtest/gtest.h>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "core/base/error.h"
#include "core/interpretation/classes/profile.h"

namespace posenc::core::interpretation {
namespace {

TEST(ReadingRulesTest, RowsAreComplete) {
  for (const ReadingRow& row : ReadingRows()) {
    EXPECT_FALSE(row.says.empty());
    EXPECT_FALSE(row.what.empty() && (row.rule == ReadingRule::kKnowsType ||
                                      row.rule == ReadingRule::kNeedsKeys ||
                                      row.rule == ReadingRule::kReadsMscales ||
                                      row.rule == ReadingRule::kFailsAtType ||
                                      row.rule == ReadingRule::kBaseKey))
        << row.says;
    // In this rule the number may be 0.
    if (row.rule == ReadingRule::kWidthMultiple) continue;
    EXPECT_EQ(row.number == 0, row.rule != ReadingRule::kDefaultBase &&
                                   row.rule != ReadingRule::kDefaultFactor &&
                                   row.rule != ReadingRule::kFixedBase &&
                                   row.rule != ReadingRule::kDictBase &&
                                   row.rule != ReadingRule::kDefaultShare &&
                                   row.rule != ReadingRule::kDefaultSlice &&
                                   row.rule != ReadingRule::kDefaultRest)
        << row.says;
    for (const absl::string_view version : {row.since, row.until}) {
      EXPECT_TRUE(version.empty() || ParseVersion(row.reader, version).ok())
          << version;
    }
  }
}

TEST(ReadingRulesTest, ReadersReadAsVersionsOfTheirProject) {
  for (const Reader& reader : Readers()) {
    EXPECT_EQ(FindReader(reader.id), &reader);
    EXPECT_TRUE(reader.reads_as.empty() ||
                ParseVersion(reader.profile, reader.reads_as).ok())
        << reader.id;
  }
  EXPECT_EQ(FindReader("nobody"), nullptr);
  const Reader& older = *FindReader("hf4");
  EXPECT_TRUE(LacksClass(older.profile, VersionOf(older), "qwen3_5"));
  EXPECT_FALSE(LacksClass(older.profile, VersionOf(older), "qwen3"));
  EXPECT_FALSE(LacksClass(Profile::kHf, {}, "qwen3_5"));
  EXPECT_FALSE(LacksClass(Profile::kMlx, {}, "qwen3_5"));
  EXPECT_TRUE(LacksClass(Profile::kMlx, {}, "nomic_bert"));
}

TEST(ReadingRulesTest, VersionsCompareByTheirNumbers) {
  const Version version = *ParseVersion(Profile::kVllm, "0.22.0");
  EXPECT_TRUE(IsSince(version, "0.22"));
  EXPECT_TRUE(IsSince(version, "0.9.1"));
  EXPECT_FALSE(IsSince(version, "0.22.1"));
  EXPECT_FALSE(IsSince(version, "0.100"));
  EXPECT_TRUE(IsSince(*ParseVersion(Profile::kVllm, "v1"), "0.33.0"));
  EXPECT_TRUE(IsSince({}, "99"));
}

TEST(ReadingRulesTest, VersionsAreNumbersWithDots) {
  for (const char* text : {"abc", "0..1", "-1", "0.33.", ".", "1e3", " 0.33",
                           "0.33 ", "v", "99999999999999999999", "0x10",
                           "1.2.3.4.5.6.7.8.9.10.11.12.13.14.15"}) {
    const absl::Status status = ParseVersion(Profile::kVllm, text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    const auto details = GetErrorDetails(status);
    ASSERT_TRUE(details.has_value()) << text;
    EXPECT_EQ(details->field, "profile_version");
  }
}

}  // namespace
}  // namespace posenc::core::interpretation
