// Conveniences of the command: pipes, words that are nearly right,
// POSENC_SERVER, completion, the manual page.

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "client/cli/misspelt.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/server.h"
#include "tests/fixtures/cli.h"

namespace posenc::cli {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// A line of the shell in which `posenc` is the command. Only stdout is told;
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
  // Exit code 2, and the message of the error.
  std::string UsageMessage(const std::string& arguments) const {
    const Outcome outcome = Posenc(arguments + " --json");
    EXPECT_EQ(outcome.exit_code, 2) << arguments << "\n" << outcome.text;
    const Json json = outcome.json();
    return json.is_object() ? json["error"]["message"].get<std::string>() : "";
  }
};

// The same steps, through files and through pipes.
TEST_F(AmenitiesTest, TensorsGoThroughPipes) {
  const std::string rope = " --preset llama-3.1-8b --layout bshd ";
  const Outcome files = Shell(
      "posenc sample --seed 7 --q 1,4,2,128 --k 1,4,2,128 --out a.safetensors "
      "&& posenc apply --start 0 --in a.safetensors --out b.safetensors" +
      rope +
      "&& posenc reposition --shift 5 --in b.safetensors --out c.safetensors" +
      rope);
  ASSERT_EQ(files.exit_code, 0) << ReadText("errors");
  const Outcome pipes = Shell(
      "posenc sample --seed 7 --q 1,4,2,128 --k 1,4,2,128 --out - "
      "| posenc apply --start 0 --in - --out -" +
      rope + "| posenc reposition --shift 5 --in - --out - " + rope +
      "> piped.safetensors");
  ASSERT_EQ(pipes.exit_code, 0) << ReadText("errors");
  EXPECT_EQ(ReadText("piped.safetensors"), ReadText("c.safetensors"));
  EXPECT_THAT(ReadText("errors"), HasSubstr("repositioned k"));
}

TEST_F(AmenitiesTest, StandardOutputGetsNpyWhereThereIsOneTensor) {
  const struct {
    std::string command, file;
  } kCases[] = {
      {"table --sinusoidal 8 --order interleaved --rows 3", "t.npy"},
      {"positions --packed 2,3", "p.npy"},
      {"bias --alibi 2 --query-length 5", "b.npy"},
      {"table --preset llama-3.1-8b --rows 3", "t.safetensors"},
      {"table --preset llama-3.1-8b --rows 3 --layout complex", "c.npy"},
  };
  for (const auto& [command, file] : kCases) {
    const Outcome outcome = Shell("posenc " + command + " --out " + file +
                                  " && posenc " + command + " --out - >piped");
    ASSERT_EQ(outcome.exit_code, 0) << command << "\n" << ReadText("errors");
    EXPECT_FALSE(ReadText(file).empty()) << command;
    EXPECT_EQ(ReadText("piped"), ReadText(file)) << command;
  }
  const Outcome cosines = Shell(
      "posenc table --preset llama-3.1-8b --rows 3 --out-cos cos.npy && "
      "posenc table --preset llama-3.1-8b --rows 3 --out-cos - >piped");
  ASSERT_EQ(cosines.exit_code, 0) << ReadText("errors");
  EXPECT_EQ(ReadText("piped"), ReadText("cos.npy"));
}

TEST_F(AmenitiesTest, StandardInputTellsItsFormat) {
  ASSERT_EQ(
      Shell("posenc positions --packed 2,3 --out ids.npy && "
            "posenc table --preset llama-3.1-8b --ids - --out-cos a.npy "
            "<ids.npy && "
            "posenc table --preset llama-3.1-8b --ids ids.npy --out-cos b.npy")
          .exit_code,
      0)
      << ReadText("errors");
  EXPECT_EQ(ReadText("a.npy"), ReadText("b.npy"));
  // A tensor of the file on standard input, by name.
  ASSERT_EQ(Shell("posenc positions --packed 2,3 --out - | posenc table "
                  "--preset llama-3.1-8b --ids - --out-sin c.npy")
                .exit_code,
            0)
      << ReadText("errors");
  const Outcome wrong = Shell(
      "posenc positions --packed 2,3 --out - | posenc reposition --shift 1 "
      "--layout bshd --preset llama-3.1-8b --in - --out x.safetensors");
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_THAT(ReadText("errors"), HasSubstr("--out: --in is an .npy file"));
  EXPECT_EQ(Shell("printf abc | posenc reposition --shift 1 --layout bshd "
                  "--preset llama-3.1-8b --in - --out -")
                .exit_code,
            3);
  EXPECT_THAT(ReadText("errors"), HasSubstr("-: not a .safetensors file"));
  EXPECT_EQ(Shell("posenc sample --q 1,1,1,2 --out - | posenc table --preset "
                  "llama-3.1-8b --ids -:nothing")
                .exit_code,
            3);
  EXPECT_THAT(ReadText("errors"), HasSubstr("holds no tensor \"nothing\""));
}

TEST_F(AmenitiesTest, AStreamIsReadAndWrittenOnce) {
  const std::string apply =
      "apply --preset llama-3.1-8b --layout bshd --out x.npy --in - ";
  EXPECT_EQ(UsageMessage(apply + "--ids -"),
            "--in, --ids: several are '-'; standard input can be read once");
  EXPECT_THAT(UsageMessage("table --preset llama-3.1-8b --rows 3 --out-cos - "
                           "--out-sin -"),
              HasSubstr("standard output takes one file"));
}

TEST_F(AmenitiesTest, NothingButTheFileGoesToStandardOutput) {
  const Outcome outcome = Shell(
      "posenc table --json --sinusoidal 8 --order interleaved --rows 3 --out - "
      ">piped");
  ASSERT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(ReadText("piped"), StartsWith("\x93NUMPY"));
  EXPECT_TRUE(Json::accept(ReadText("errors"))) << ReadText("errors");
  // Not even an error.
  const Outcome failed = Shell(
      "posenc table --json --preset nobody --rows 3 --out - >piped || true");
  EXPECT_EQ(ReadText("piped"), "");
  EXPECT_THAT(ReadText("errors"), HasSubstr("ERROR_REASON_PRESET_UNKNOWN"));
}

TEST_F(AmenitiesTest, AFullPipeIsAnError) {
  const Outcome outcome = Shell(
      "posenc table --sinusoidal 8 --order interleaved --rows 3 --out - "
      ">/dev/full");
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_THAT(ReadText("errors"), HasSubstr("-: cannot write"));
  EXPECT_EQ(Shell("posenc bias --alibi 2 --query-length 5 --out - >/dev/full")
                .exit_code,
            3);
  EXPECT_THAT(ReadText("errors"), HasSubstr("-: cannot write"));
}

TEST_F(AmenitiesTest, OutputThatIsLostIsNoSuccess) {
  for (const char* command : {"doctor --checks", "resolve --preset phi-4",
                              "--json resolve --preset phi-4", "help"}) {
    EXPECT_EQ(Shell(std::string("posenc ") + command + " >/dev/full").exit_code,
              3)
        << command;
    EXPECT_THAT(ReadText("errors"), HasSubstr("standard output: cannot write"));
  }
}

TEST_F(AmenitiesTest, AsksWhichCommandWasMeant) {
  EXPECT_EQ(UsageMessage("reslove"),
            "reslove: is no command; did you mean resolve?");
  EXPECT_EQ(UsageMessage("repo"),
            "repo: is no command; did you mean "
            "reposition?");
  EXPECT_EQ(UsageMessage("hlep"), "hlep: is no command; see `posenc --help`");
  EXPECT_EQ(Posenc("help").text, Posenc("--help").text);
  EXPECT_EQ(Posenc("help plot").text, Posenc("plot --help").text);
  EXPECT_EQ(Posenc("help help").text, Posenc("--help").text);
  for (const char* asked : {"help plto", "plto --help", "--help plto",
                            "help --json plto", "--server x plto --help"}) {
    EXPECT_EQ(UsageMessage(asked), "plto: is no command; did you mean plot?")
        << asked;
  }
  EXPECT_EQ(
      UsageMessage(std::string(100000, 'x')).size(),
      100000 + std::string(": is no command; see `posenc --help`").size());
  EXPECT_THAT(UsageMessage(""), HasSubstr("`posenc --help`"));
}

TEST_F(AmenitiesTest, AsksWhichFlagWasMeant) {
  EXPECT_EQ(UsageMessage("resolve --presett llama-3.1-8b"),
            "--presett: is no flag of `posenc resolve`; did you mean "
            "--preset?");
  EXPECT_EQ(UsageMessage("resolve --compare_profile=vllm"),
            "--compare_profile: is no flag of `posenc resolve`; did you mean "
            "--compare-profile?");
  EXPECT_EQ(UsageMessage("--sever x info"),
            "--sever: is no flag of `posenc`; did you mean --server?");
  EXPECT_EQ(UsageMessage("info --zzzzzz"),
            "--zzzzzz: is no flag of `posenc info`");
  // What stands after a flag is its value, whatever it looks like.
  EXPECT_THAT(UsageMessage("resolve --preset reslove --layer-index x"),
              HasSubstr("--layer-index"));
}

TEST_F(AmenitiesTest, ServersErrorsNameTheFlag) {
  const struct {
    std::string arguments, flag;
  } kCases[] = {
      {"resolve --preset nobody", "--preset"},
      {"resolve --preset llama-3.1-8b --compare-preset nobody",
       "--compare-preset"},
      {"resolve --preset gemma-3-4b --layer-type nonsense", "--layer-type"},
      {"resolve --spec '{\"rotaryDim\":3,\"pairing\":\"PAIRING_INTERLEAVED\"}'",
       "--spec"},
      {"table --preset llama-3.1-8b --rows -1", "--rows"},
  };
  for (const auto& [arguments, flag] : kCases) {
    const Outcome outcome = Posenc(arguments + " --json");
    ASSERT_EQ(outcome.exit_code, 1) << arguments << outcome.text;
    EXPECT_EQ(outcome.json()["error"]["flag"], flag) << outcome.text;
    EXPECT_THAT(Posenc(arguments).text, HasSubstr(" (" + flag + ")\n"));
  }
}

TEST_F(AmenitiesTest, TakesTheServerFromTheEnvironment) {
  server::ServerOptions options;
  options.listen = {"127.0.0.1:0"};
  const auto server = server::Server::Start(options);
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string address = (*server)->addresses()[0];
  EXPECT_THAT(Shell("POSENC_SERVER=" + address + " posenc info").text,
              HasSubstr(address));
  // The flag is stronger, and an empty variable is none.
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
  // What bash offers for the last of the words.
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

TEST_F(CompletionTest, BashOffersCommandsFlagsAndValues) {
  EXPECT_THAT(Offers("posenc reso"), ElementsAre("resolve"));
  EXPECT_THAT(Offers("posenc --json reso"), ElementsAre("resolve"));
  EXPECT_THAT(Offers("posenc apply --lay"),
              testing::UnorderedElementsAre("--layout", "--layer-type",
                                            "--layer-index"));
  EXPECT_THAT(Offers("posenc info --time"), ElementsAre("--timeout"));
  EXPECT_THAT(Offers("posenc apply --layout \"\""),
              ElementsAre("bshd", "bhsd", "sbhd", "thd"));
  EXPECT_THAT(Offers("posenc table --layout \"\""),
              ElementsAre("half", "duplicated", "pair_repeated", "complex"));
  EXPECT_THAT(Offers("posenc apply --as \"\""), ElementsAre("q", "k"));
  EXPECT_THAT(Offers("posenc resolve --compare-profile = v"),
              ElementsAre("vllm"));
  EXPECT_THAT(Offers("posenc resolve --preset gpt-oss-20"),
              ElementsAre("gpt-oss-20b"));
  EXPECT_THAT(Offers("posenc completion f"), ElementsAre("fish"));
  EXPECT_THAT(Offers("posenc plot kep"), ElementsAre("kept"));
  EXPECT_THAT(Offers("posenc doctor --reader llama"), ElementsAre("llama_cpp"));
  EXPECT_THAT(Offers("posenc doctor --fail-on no"),
              ElementsAre("note", "none"));
  EXPECT_THAT(Offers("posenc resolve --length \"\""), ElementsAre(""));
}

TEST_F(CompletionTest, BashOffersFilesWhereFilesAreMeant) {
  WriteText("config.json", "{}");
  EXPECT_THAT(Offers("posenc resolve --config con"),
              ElementsAre("config.json"));
  EXPECT_THAT(Offers("posenc doctor con"), ElementsAre("config.json"));
}

// Every command and flag that --help lists is in each script and in the page.
TEST_F(CompletionTest, ScriptsAndManualHaveEveryCommandAndFlag) {
  const std::string bash = Posenc("completion bash").text;
  const std::string zsh = Posenc("completion zsh").text;
  const std::string fish = Posenc("completion fish").text;
  std::string manual = Posenc("man").text;
  for (std::size_t at; (at = manual.find("\\-")) != std::string::npos;) {
    manual.erase(at, 1);
  }
  std::vector<std::string> commands;
  std::stringstream help(Posenc("--help").text);
  bool listed = false;
  for (std::string line; std::getline(help, line);) {
    if (line == "Subcommands:") {
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
    expect(bash, command);
    expect(zsh, "'" + command);
    expect(fish, "-a " + command);
    if (!command.empty()) expect(manual, "\n.SS posenc " + command + "\n");
    std::stringstream flags(Posenc(command + " --help").text);
    for (std::string line; std::getline(flags, line);) {
      // "  --name TYPE", "  -h,--help" or "  --name,--alias"
      if (line.substr(0, 3) != "  -") continue;
      std::stringstream names(line.substr(2, line.find(' ', 2) - 2));
      for (std::string flag; std::getline(names, flag, ',');) {
        const std::string bare = flag.substr(flag.find_first_not_of('-'));
        expect(bash, flag);
        expect(zsh, "'*" + flag);
        expect(fish, (flag[1] == '-' ? " -l " : " -s ") + bare + " ");
        expect(manual, "\\fB" + flag + "\\fR");
      }
    }
  }
}

TEST_F(CompletionTest, RefusesOtherShells) {
  EXPECT_THAT(UsageMessage("completion tcsh"), HasSubstr("SHELL"));
  EXPECT_THAT(UsageMessage("completion"), HasSubstr("SHELL"));
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
