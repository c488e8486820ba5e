// Conveniences of the command: POSENC_SERVER, completion, the manual page.

#include <fstream>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/service/server.h"
#include "tests/fixtures/cli.h"

namespace posenc::cli {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

// Runs a shell line in which `posenc` is the command. Returns only stdout;
// stderr goes to the file "errors" of the current folder.
class AmenitiesTest : public PosencTest {
 protected:
  Outcome Shell(const std::string& line) const {
    return RunCommand("/bin/bash",
                      "-c " +
                          Quoted("cd \"$1\" && posenc() { " POSENC_PATH
                                 " \"$@\"; } && set -o pipefail && { " +
                                 line + "; } 2>errors") +
                          " bash " + Quoted(Path("")));
  }
  std::string ReadText(const std::string& name) const {
    std::ifstream file(Path(name), std::ios::binary);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }
};

TEST_F(AmenitiesTest, TakesTheServerFromTheEnvironment) {
  server::ServerOptions options;
  options.listen = {"127.0.0.1:0"};
  const auto server = server::Server::Start(options);
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string address = (*server)->addresses()[0];
  EXPECT_THAT(Shell("POSENC_SERVER=" + address + " posenc info").text,
              HasSubstr(address));
  // The flag overrides the variable, and an empty variable counts as unset.
  EXPECT_THAT(
      Shell("POSENC_SERVER=127.0.0.1:1 posenc info --server " + address).text,
      HasSubstr(address));
  EXPECT_THAT(Shell("POSENC_SERVER= posenc info").text,
              HasSubstr("inside this process"));
  EXPECT_THAT(Posenc("info --help").text + Posenc("--help").text,
              HasSubstr("POSENC_SERVER"));
}

// The build has written the files to share/, beside bin/.
class ShellFilesTest : public AmenitiesTest {
 protected:
  std::string Share(const std::string& name) const {
    return Shell("cat \"$(dirname " POSENC_PATH ")/../share/" + name + "\"")
        .text;
  }

  // Returns bash's completions of the last word.
  std::vector<std::string> Offers(const std::string& words) {
    const Outcome outcome = Shell(
        "source $(dirname " POSENC_PATH ")/../share/posenc.bash; COMP_WORDS=(" +
        words +
        "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _posenc; "
        "printf \"%s\\n\" \"${COMPREPLY[@]}\"");
    EXPECT_EQ(outcome.exit_code, 0) << ReadText("errors");
    return absl::StrSplit(outcome.text, '\n', absl::SkipEmpty());
  }
};

// Nothing is offered for values and arguments: bash then completes files.
TEST_F(ShellFilesTest, BashOffersCommandsAndFlags) {
  struct Case {
    const char* words;
    std::vector<std::string> offers;
  };
  const Case kCases[] = {
      {"reso", {"resolve"}},
      {"--json reso", {"resolve"}},
      {"apply --lay", {"--layout", "--layer-type", "--layer-index"}},
      {"--json info --time", {"--timeout"}},
      {"resolve --config con", {}},
      {"doctor con", {}}};
  for (const auto& [words, offers] : kCases) {
    EXPECT_THAT(Offers(std::string("posenc ") + words),
                testing::UnorderedElementsAreArray(offers))
        << words;
  }
}

// The completions and the manual page have every command and flag that --help
// lists.
TEST_F(ShellFilesTest, HaveEveryCommandAndFlag) {
  const std::string manual =
      absl::StrReplaceAll(Share("posenc.1"), {{"\\-", "-"}});
  const std::string zsh = Share("_posenc"), fish = Share("posenc.fish");
  std::vector<std::string> commands = Offers("posenc \"\"");
  ASSERT_THAT(commands, Contains("doctor"));
  ASSERT_THAT(Posenc("--help").text, HasSubstr("  doctor "));
  for (const std::string& command : commands) {
    if (command[0] == '-') continue;
    EXPECT_TRUE(absl::StrContains(manual, "\n.SS posenc " + command + "\n"));
    EXPECT_TRUE(absl::StrContains(fish, " -a " + command + " "));
    const auto completed = Offers("posenc " + command + " -");
    std::stringstream flags(Posenc(command + " --help").text);
    for (std::string line; std::getline(flags, line);) {
      // "  --name TYPE", "  -h,--help" or "  --name,--alias"; CLI11 2.6 has
      // more spaces.
      const std::size_t at = line.find_first_not_of(' ');
      if (at > 10 || line[at] != '-') continue;
      for (const std::string& flag : std::vector<std::string>(absl::StrSplit(
               line.substr(at), absl::ByAnyChar(", "), absl::SkipEmpty()))) {
        if (flag == "-h") continue;
        if (!absl::StartsWith(flag, "--")) break;
        EXPECT_THAT(completed, Contains(flag)) << command;
        // Prints only the flag on failure: with the whole file, the flag would
        // be hard to find.
        EXPECT_TRUE(absl::StrContains(zsh, flag + " ")) << flag;
        EXPECT_TRUE(absl::StrContains(fish, "-l " + flag.substr(2) + "\n"))
            << flag;
        EXPECT_TRUE(absl::StrContains(manual, flag)) << flag;
      }
    }
  }
}

TEST_F(ShellFilesTest, ThePageHasNoLineThatIsAnUnknownRequest) {
  std::stringstream lines(Share("posenc.1"));
  int sections = 0;
  for (std::string line; std::getline(lines, line);) {
    EXPECT_FALSE(line.empty());
    if (line.empty() || (line[0] != '.' && line[0] != '\'')) continue;
    const std::string request = line.substr(0, line.find(' '));
    EXPECT_THAT((std::vector<std::string>{".TH", ".SH", ".SS", ".TP", ".PP",
                                          ".B", ".EX", ".EE"}),
                Contains(request));
    sections += request == ".SH";
  }
  EXPECT_EQ(sections, 3);
}

}  // namespace
}  // namespace posenc::cli
