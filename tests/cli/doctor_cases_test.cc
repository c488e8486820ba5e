// Doctor on checkpoints that people filed: tests/data/doctor/cases.json has for
// each the thread, what is wrong, and what it must say.

#include "tests/fixtures/doctor_cases.h"

#include <gmock/gmock.h>

namespace posenc::cli {
namespace {

class DoctorCasesTest : public DoctorCases {};

TEST_F(DoctorCasesTest, EveryBadCaseIsToldAndEveryGoodOneIsNot) {
  ASSERT_TRUE(Data().is_object());
  EXPECT_GE(Data()["cases"].size(), 80);
  int number = 0;
  for (const Json& of : Data()["cases"]) {
    const auto id = of["id"].get<std::string>();
    SCOPED_TRACE(of["thread"].get<std::string>() + ", " + id);
    const std::string folder = "case" + std::to_string(number++);
    int exit_code = -1;
    const Json bad = Output(Write(of, "bad", folder + "bad"), &exit_code);
    ASSERT_TRUE(bad.is_object());
    EXPECT_EQ(exit_code, of["exit"].get<int>()) << bad.dump(1);
    const Json* const finding = FindId(bad, id);
    ASSERT_NE(finding, nullptr) << bad.dump(1);
    EXPECT_EQ((*finding)["severity"], of["severity"]) << finding->dump(1);
    if (of.value("rank", 0) == 1) {
      EXPECT_EQ(bad["findings"][0]["id"], id) << bad.dump(1);
    }
    const std::string said = (*finding)["message"].get<std::string>() + "\n" +
                             (*finding)["fix"].get<std::string>();
    for (const Json& text : of.value("texts", Json::array())) {
      EXPECT_THAT(said, testing::HasSubstr(text.get<std::string>()));
    }
    if (of.contains("readers")) {
      Json names = Json::array();
      for (const Json& reader : (*finding)["readers"]) {
        names.push_back(reader["name"]);
      }
      EXPECT_EQ(names, of["readers"]);
    }
    for (const Json& other : of.value("absent", Json::array())) {
      EXPECT_EQ(FindId(bad, other.get<std::string>()), nullptr) << bad.dump(1);
    }
    const Json good = Output(Write(of, "good", folder + "good"), &exit_code);
    ASSERT_TRUE(good.is_object());
    EXPECT_EQ(exit_code, of.value("good_exit", 0)) << good.dump(1);
    EXPECT_EQ(FindId(good, id), nullptr) << good.dump(1);
  }
}

}  // namespace
}  // namespace posenc::cli
