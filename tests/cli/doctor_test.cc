// `posenc doctor` on files: a pair for every check, exit codes and JSON. The
// cases of tests/data/cli/doctor.json have files that it refuses.

#include <gmock/gmock.h>
#include <unistd.h>

#include <sstream>

#include "core/doctor/finding.h"
#include "server/service/server.h"
#include "tests/fixtures/doctor_cases.h"

namespace posenc::cli {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

const fs::path kPairs = fs::path(POSENC_TEST_DATA) / "doctor";

class DoctorTest : public DoctorCases {
 protected:
  void Write(const std::string& name, const Json& json) {
    WriteText(name, json.dump());
  }
  Outcome Doctor(const std::string& arguments) {
    return Posenc("doctor " + arguments);
  }
};

Json Plain() {
  return {{"model_type", "llama"},    {"hidden_size", 512},
          {"num_attention_heads", 8}, {"head_dim", 64},
          {"rope_theta", 500000.0},   {"max_position_embeddings", 131072}};
}

// Returns the lines on stderr.
std::string Complaints(const std::string& text) {
  std::istringstream lines(text);
  std::string complaints, line;
  while (std::getline(lines, line)) {
    if (line.rfind("posenc: ", 0) == 0) complaints += line + "\n";
  }
  return complaints;
}

// Returns the words of a pair's `command`, quoted for the shell.
std::string CommandOf(const fs::path& folder) {
  std::ifstream file(folder / "command");
  std::string words, line;
  while (std::getline(file, line)) {
    std::string quoted = "'";
    for (const char c : line) {
      quoted += c == '\'' ? "'\\''" : std::string(1, c);
    }
    words += " " + quoted + "'";
  }
  return words;
}

TEST_F(DoctorTest, EveryPairShowsItsCheckInTheBadFolderAlone) {
  for (const core::doctor::CheckRow& row : core::doctor::CheckRows()) {
    // certificate_test covers the checks of a cache.
    if (row.id.rfind("cache.", 0) == 0) continue;
    EXPECT_TRUE(fs::is_directory(kPairs / std::string(row.id) / "bad"))
        << row.id;
  }
  for (const auto& entry : fs::directory_iterator(kPairs)) {
    if (!entry.is_directory()) continue;
    const std::string id = entry.path().filename().string();
    const core::doctor::CheckRow* const row = core::doctor::FindCheck(id);
    ASSERT_NE(row, nullptr) << id;
    for (const bool bad : {true, false}) {
      const fs::path folder = entry.path() / (bad ? "bad" : "good");
      int exit_code = -1;
      const Json output =
          Output(Quoted(folder.string()) + CommandOf(folder), &exit_code);
      ASSERT_TRUE(output.is_object()) << id;
      for (const Json& input : output["inputs"]) {
        EXPECT_TRUE(input["unreadable"].is_null()) << id << input;
      }
      const Json* const finding = FindId(output, id);
      ASSERT_EQ(finding != nullptr, bad) << id << output.dump(1);
      if (!bad) continue;
      if (!row->by_size) {
        EXPECT_EQ((*finding)["severity"].get<std::string>(),
                  core::doctor::SeverityName(row->severity))
            << id;
      }
      EXPECT_LE((*finding)["message"].get<std::string>().size(), 400) << id;
      EXPECT_FALSE((*finding)["fix"].get<std::string>().empty()) << id;
    }
  }
}

TEST_F(DoctorTest, ChecksAreListedWithIdSeverityAndFix) {
  const Outcome outcome = Posenc("--json doctor --checks");
  EXPECT_EQ(outcome.exit_code, 0);
  const Json checks = Json::parse(outcome.text, nullptr, false)["checks"];
  ASSERT_EQ(checks.size(), core::doctor::CheckRows().size());
  for (const Json& check : checks) {
    const core::doctor::CheckRow* const row =
        core::doctor::FindCheck(check["id"].get<std::string>());
    ASSERT_NE(row, nullptr) << check;
    EXPECT_EQ(
        check["severity"].get<std::string>(),
        row->by_size ? "by size" : core::doctor::SeverityName(row->severity));
    EXPECT_EQ(check["finds"].get<std::string>(), row->finds);
    EXPECT_EQ(check["fix"].get<std::string>().find('$'), std::string::npos);
  }
  EXPECT_THAT(Doctor("--checks").text, HasSubstr("config.type-conflict"));
}

TEST_F(DoctorTest, UnreadableInputsAreNamed) {
  // Root may read everything, unless it drops two capabilities.
  const std::string program =
      geteuid() == 0 ? "/usr/bin/setpriv" : "/usr/bin/env";
  const std::string before =
      geteuid() == 0 ? "--bounding-set=-dac_override,-dac_read_search " : "";
  fs::create_directories(Path("closed"));
  fs::create_directories(Path("open"));
  Write("closed/config.json", Plain());
  Write("open/config.json", Plain());
  fs::permissions(Path("closed"), fs::perms::none);
  fs::permissions(Path("open/config.json"), fs::perms::none);
  for (const char* path : {"closed", "closed/config.json", "open"}) {
    const Outcome outcome = RunCommand(
        program, before + POSENC_PATH + " doctor " + Quoted(Path(path)));
    EXPECT_EQ(outcome.exit_code, 3) << path << "\n" << outcome.text;
    EXPECT_THAT(Complaints(outcome.text),
                HasSubstr("cannot open: Permission denied"))
        << path;
  }
  fs::permissions(Path("closed"), fs::perms::owner_all);
}

TEST_F(DoctorTest, AServerElsewhereSaysTheSame) {
  server::ServerOptions options;
  options.listen = {"unix:" + Path("server")};
  const auto server = server::Server::Start(options);
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string to = " --server " + Quoted(options.listen[0]);
  for (const auto& entry : fs::directory_iterator(kPairs)) {
    if (!entry.is_directory()) continue;
    const fs::path folder = entry.path() / "bad";
    for (const std::string json : {"", " --json"}) {
      const std::string arguments = Quoted(folder.string()) + CommandOf(folder);
      const Outcome here = Doctor(arguments + json);
      const Outcome there = Doctor(arguments + json + to);
      EXPECT_EQ(here.exit_code, there.exit_code) << folder;
      EXPECT_EQ(here.text, there.text) << folder;
    }
  }
  const Outcome away = Doctor(Quoted((kPairs / "gguf.swa" / "bad").string()) +
                              " --server unix:" + Path("nobody"));
  EXPECT_EQ(away.exit_code, 1);
  EXPECT_THAT(away.text, HasSubstr("UNAVAILABLE"));
}

}  // namespace
}  // namespace posenc::cli
