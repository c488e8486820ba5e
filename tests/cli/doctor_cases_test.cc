// Doctor on checkpoints that people filed: tests/data/doctor/cases.json has for
// each the thread, what is wrong, and what it must say.

#include <gmock/gmock.h>

#include <algorithm>
#include <cstdlib>

#include "tests/fixtures/cli.h"
#include "tests/fixtures/model_files.h"

namespace posenc::cli {
namespace {

namespace fs = std::filesystem;

// A case: `model` names the configuration that it begins with. `both`, and then
// `bad` or `good`, are changes (RFC 7386) of its files and of its arguments.
// The bad one has `id` with `severity` and `exit`, in the first place if `rank`
// is 1, with `texts` in its message or fix, of `readers` if they are given, and
// none of `absent`; the good one has no `id`, and `good_exit` or 0.
class DoctorCasesTest : public PosencTest {
 protected:
  static const Json& Data() {
    static const Json* const data = [] {
      std::ifstream file(fs::path(POSENC_TEST_DATA) / "doctor" / "cases.json");
      return new Json(Json::parse(file, nullptr, false));
    }();
    return *data;
  }

  // Writes the files, and returns the arguments.
  std::string Write(const Json& of, const std::string& change,
                    const std::string& folder) {
    if (of.contains("folder")) {
      return Quoted((fs::path(POSENC_TEST_DATA) / "doctor" /
                     of["folder"].get<std::string>() / change)
                        .string());
    }
    Json files = Json::object();
    if (of.contains("model")) {
      files["config.json"] = Data()["models"][of["model"].get<std::string>()];
    }
    files["arguments"] = of.value("arguments", "");
    files.merge_patch(of.value("both", Json::object()));
    files.merge_patch(of[change]);
    fs::create_directory(Path(folder));
    for (const auto& [name, content] : files.items()) {
      if (name == "arguments") continue;
      const std::string path = folder + "/" + name;
      if (name.ends_with(".gguf")) {
        WriteText(path, GgufBytes(content));
      } else if (name.ends_with(".safetensors")) {
        WriteText(path, SafetensorsBytes(content));
      } else {
        WriteText(path, content.dump());
      }
    }
    return Quoted(Path(folder)) + " " + files["arguments"].get<std::string>();
  }

  static Json Output(const std::string& arguments, int* exit_code) {
    const Outcome outcome = Posenc("--json doctor " + arguments);
    *exit_code = outcome.exit_code;
    const std::size_t end = outcome.text.rfind("\n}\n");
    return Json::parse(
        outcome.text.substr(0, end == std::string::npos ? end : end + 2),
        nullptr, false);
  }

  static const Json* FindId(const Json& output, const std::string& id) {
    for (const Json& finding : output["findings"]) {
      if (finding["id"] == id) return &finding;
    }
    return nullptr;
  }
};

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
