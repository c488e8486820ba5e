// Replays the record of transformers' answers (tests/data/parity).

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "tests/parity/replay.h"

namespace posenc::parity {
namespace {

const Record& Kept() {
  static const auto& record = *new absl::StatusOr<Record>(
      ReadRecord(std::string(POSENC_TEST_DATA) + "/parity/transformers.gz"));
  EXPECT_TRUE(record.ok()) << record.status();
  static const auto& none = *new Record;
  return record.ok() ? *record : none;
}

std::string Name(const Case& one) {
  return one.group + " " + one.model_type + " " + one.name;
}

TEST(ParityTest, TheRecordHasEveryGroup) {
  std::map<std::string, int> groups;
  for (const Case& one : Kept().cases) ++groups[one.group];
  EXPECT_GE(groups["types"], 2500);
  EXPECT_EQ(groups["variants"], 8 * 33 * 4);
  EXPECT_GE(groups["damaged"], 2800);
  EXPECT_GE(groups["rewrites"], 350);
  EXPECT_GE(groups["published"], 1100);
  EXPECT_GE(groups["audio"], 30);
  EXPECT_GE(groups["found"], 80);
}

TEST(ParityTest, NoDifferenceFromTransformersIsSilent) {
  for (const Case& one : Kept().cases) {
    const Finding finding = Examine(one);
    EXPECT_NE(finding.outcome, Outcome::kDiffersSilent)
        << Name(one) << ": " << finding.why;
    EXPECT_NE(finding.outcome, Outcome::kAnswersSilent)
        << Name(one) << ": " << finding.why;
    EXPECT_NE(finding.outcome, Outcome::kWrongStatus)
        << Name(one) << ": " << finding.why;
  }
}

TEST(ParityTest, WarningsOfDifferencesNameTheKeyAndSayBothReadings) {
  for (const Case& one : Kept().cases) {
    const Finding finding = Examine(one);
    if (finding.outcome != Outcome::kDiffersWarned &&
        finding.outcome != Outcome::kAnswersWarned) {
      continue;
    }
    EXPECT_TRUE(SaysBothReadings(one.config_json, finding.warnings))
        << Name(one) << ": " << finding.why;
  }
}

TEST(ParityTest, TypesAgreeInEverySpelling) {
  std::map<std::string, bool> agrees;
  for (const Case& one : Kept().cases) {
    if (one.group != "types" || !one.error.empty()) continue;
    const Outcome outcome = Examine(one).outcome;
    const bool same =
        outcome == Outcome::kAgrees || outcome == Outcome::kAgreesWarned;
    const auto [it, added] = agrees.try_emplace(one.model_type, same);
    if (!added) it->second = it->second && same;
  }
  int same = 0;
  for (const auto& [type, all] : agrees) same += all ? 1 : 0;
  EXPECT_GE(agrees.size(), 320u);
  EXPECT_GE(same, 0.98 * static_cast<double>(agrees.size()));
}

// Leaves out MiniMax M3, because its own file has a rotary_dim that its class
// does not read.
TEST(ParityTest, SavedConfigurationsThatAgreeCarryNoWarning) {
  for (const Case& one : Kept().cases) {
    if (one.group != "types" || (one.name != "saved" && one.name != "full")) {
      continue;
    }
    if (one.model_type.rfind("minimax_m3_vl", 0) == 0) continue;
    const Finding finding = Examine(one);
    EXPECT_NE(finding.outcome, Outcome::kAgreesWarned)
        << Name(one) << ": " << finding.why;
  }
}

}  // namespace
}  // namespace posenc::parity
