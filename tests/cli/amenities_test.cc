// Conveniences of the command: POSENC_SERVER, completion, the manual page, and
// misspelt words.

#include <fstream>
#include <sstream>

#include "absl/strings/match.h"
#include "client/cli/misspelt.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/server.h"
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

class CompletionTest : public AmenitiesTest {
 protected:
  // Returns bash's completions of the last word.
  std::vector<std::string> Offers(const std::string& words) {
    const Outcome outcome =
        Shell("source <(posenc completion bash); COMP_WORDS=(" + words +
              "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _posenc; "
              "printf \"%s\\n\" \"${COMPREPLY[@]}\"");
    EXPECT_EQ(outcome.exit_code, 0) << ReadText("errors");
    std::vector<std::string> offers;
    std::stringstream lines(outcome.text);
    for (std::string line; std::getline(lines, line);) offers.push_back(line);
    return offers;
  }
};

TEST_F(CompletionTest, BashOffersCommandsFlagsValuesAndFiles) {
  WriteText("config.json", "{}");
  struct Case {
    const char* words;
    std::vector<std::string> offers;
  };
  const Case kCases[] = {
      {"reso", {"resolve"}},
      {"--json reso", {"resolve"}},
      {"apply --lay", {"--layer-type", "--layer-index", "--layout"}},
      {"info --time", {"--timeout"}},
      {"apply --layout \"\"", {"bshd", "bhsd", "sbhd", "thd"}},
      {"table --layout \"\"",
       {"half", "duplicated", "pair_repeated", "complex"}},
      {"apply --as \"\"", {"q", "k"}},
      {"resolve --compare-profile = v", {"vllm"}},
      {"resolve --preset gpt-oss-20", {"gpt-oss-20b"}},
      {"completion f", {"fish"}},
      {"plot kep", {"kept"}},
      {"doctor --reader llama", {"llama_cpp"}},
      {"doctor --fail-on no", {"note", "none"}},
      {"resolve --length \"\"", {""}},
      {"resolve --config con", {"config.json"}},
      {"doctor con", {"config.json"}}};
  for (const auto& [words, offers] : kCases) {
    EXPECT_THAT(Offers(std::string("posenc ") + words),
                testing::ElementsAreArray(offers))
        << words;
  }
}

// "--layout=" is one word in zsh and fish.
TEST_F(CompletionTest, ValuesBehindASignKeepTheirFlag) {
  EXPECT_EQ(Posenc("__complete apply --layout=bs").text, "--layout=bshd\n");
  EXPECT_EQ(Posenc("__complete resolve --config=").text, ":files\n");
  EXPECT_EQ(Posenc("__complete table --order ''").text,
            "interleaved\nsin_cos\ncos_sin\n");
}

TEST_F(CompletionTest, EachShellHasAScriptThatAsks) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    EXPECT_THAT(Posenc(std::string("completion ") + shell).text,
                HasSubstr(" __complete "));
  }
}

// Every command and flag that --help lists is completed and in the page.
TEST_F(CompletionTest, CandidatesAndManualHaveEveryCommandAndFlag) {
  const std::string all = Posenc("__complete ''").text;
  std::string manual = Posenc("man").text;
  for (std::size_t at; (at = manual.find("\\-")) != std::string::npos;) {
    manual.erase(at, 1);
  }
  std::vector<std::string> commands;
  std::stringstream help(Posenc("--help").text);
  bool listed = false;
  for (std::string line; std::getline(help, line);) {
    // CLI11 2.5 and later capitalise it.
    if (absl::EqualsIgnoreCase(line, "Subcommands:")) {
      listed = true;
    } else if (listed && line.empty()) {
      listed = false;
    } else if (listed && line.substr(0, 2) == "  " && line[2] != ' ') {
      commands.push_back(line.substr(2, line.find(' ', 2) - 2));
    }
  }
  ASSERT_THAT(commands, Contains("doctor"));
  commands.push_back("");  // the program's own flags
  const auto expect = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << part;
  };
  for (const std::string& command : commands) {
    const std::string completed = Posenc("__complete " + command + " -").text;
    expect(all, command);
    if (!command.empty()) expect(manual, "\n.SS posenc " + command + "\n");
    std::stringstream flags(Posenc(command + " --help").text);
    for (std::string line; std::getline(flags, line);) {
      // "  --name TYPE", "  -h,--help" or "  --name,--alias"
      if (line.substr(0, 3) != "  -") continue;
      std::stringstream names(line.substr(2, line.find(' ', 2) - 2));
      for (std::string flag; std::getline(names, flag, ',');) {
        if (flag != "-h") expect(completed, flag);
        expect(manual, "\\fB" + flag + "\\fR");
      }
    }
  }
}

TEST(ManualPage, HasNoLineThatIsAnUnknownRequest) {
  std::stringstream lines(Posenc("man").text);
  int sections = 0;
  for (std::string line; std::getline(lines, line);) {
    EXPECT_FALSE(line.empty());
    if (line.empty() || (line[0] != '.' && line[0] != '\'')) continue;
    const std::string request = line.substr(0, line.find(' '));
    EXPECT_THAT((std::vector<std::string>{".TH", ".SH", ".SS", ".TP", ".PP",
                                          ".B", ".I", ".EX", ".EE"}),
                Contains(request));
    sections += request == ".SH";
  }
  EXPECT_EQ(sections, 7);
}

TEST(NearestWord, IsNearOrBeginsWithTheWord) {
  const std::vector<std::string> words = {"resolve", "reposition", "apply"};
  EXPECT_EQ(NearestWord("resolv", words), "resolve");
  EXPECT_EQ(NearestWord("app", words), "apply");
  EXPECT_EQ(NearestWord("re", words), "");  // of two
  EXPECT_EQ(NearestWord("window", words), "");
  EXPECT_EQ(NearestWord("", words), "");
}

}  // namespace
}  // namespace posenc::cli
