// Every key from every source, right and wrong; and the order of sources.

#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "server/base/machine.h"
#include "server/config/check.h"
#include "server/config/keys.h"
#include "server/config/load.h"
#include "server/config/print.h"
#include "tests/server/config/config_fixture.h"

namespace posenc::server {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

// The test's texts for a kind: right texts, as flag and in the file, and wrong
// texts with their errors.
struct Wrong {
  std::string text;
  std::string fact;
};
struct Samples {
  std::string right;
  std::vector<Wrong> wrong;
};

Samples SamplesOf(const Key& key) {
  Samples samples;
  switch (key.kind) {
    case KeyKind::kBytes:
      samples = {key.max < (77 << 20) ? "77KiB" : "77MiB",
                 {{"many", "'many' is not a size"},
                  {"64MB", "'64MB' is not a size"},
                  {"1.5MiB", "'1.5MiB' is not a size"},
                  {"9223372036854775807GiB", "is not a size"},
                  {"-1", "-1 bytes; must be"}}};
      if (key.max != kUnbounded) samples.wrong.push_back({"2GiB", "; must be"});
      if (key.min > 0) {
        samples.wrong.push_back(
            {absl::StrCat(key.min - 1),
             absl::StrCat(key.min - 1, " bytes; must be ", key.min, " to")});
      }
      break;
    case KeyKind::kDuration:
      samples = {"77s",
                 {{"many", "'many' is not a duration"},
                  {"30", "'30' is not a duration"},
                  {"1d", "'1d' is not a duration"},
                  {"inf", "; must be"},
                  {"-1s", "-1s; must be"},
                  {"9000h", "9000h; must be"}}};
      if (key.min == 1) samples.wrong.push_back({"0s", "0; must be 1ms to"});
      break;
    case KeyKind::kInteger:
      samples = {"77",
                 {{"many", "'many' is not a whole number"},
                  {"1.5", "'1.5' is not a whole number"},
                  {"5s", "'5s' is not a whole number"},
                  {"1__0", "'1__0' is not a whole number"},
                  {"99999999999999999999", "is not a whole number"},
                  {"-1", "-1; must be"}}};
      if (key.max != kUnbounded) {
        samples.wrong.push_back({absl::StrCat(key.max + 1), "; must be"});
      }
      if (key.min == 1) samples.wrong.push_back({"0", "0; must be 1 to"});
      break;
    case KeyKind::kFraction:
      samples = {"0.25",
                 {{"many", "'many' is not a number"},
                  {"5%", "'5%' is not a number"},
                  {"nan", "'nan' is not a number"},
                  {"-0.5", "-0.5; must be 0 to 1"},
                  {"1.5", "1.5; must be 0 to 1"}}};
      break;
    case KeyKind::kSwitch:
      samples = {KeyText(key, Config()) == "true" ? "false" : "true",
                 {{"maybe", "'maybe' is not on or off"},
                  {"2", "'2' is not on or off"}}};
      break;
    case KeyKind::kChoice: {
      const std::vector<std::string> words = absl::StrSplit(key.value, '|');
      samples = {words.back(), {{"loud", "'loud' is not one of"}}};
      break;
    }
    case KeyKind::kText:
      samples = {"/some/where", {}};
      break;
    case KeyKind::kList:
      samples = {"unix:/some/where", {}};
      break;
  }
  return samples;
}

bool IsNumber(const Key& key) {
  return key.kind == KeyKind::kInteger || key.kind == KeyKind::kFraction ||
         key.kind == KeyKind::kSwitch;
}

std::string InFile(const Key& key, const std::string& text) {
  return IsNumber(key) ? absl::StrCat(key.name, " = ", text)
                       : absl::StrCat(key.name, " = \"", text, "\"");
}

std::vector<const Key*> FileKeys() {
  std::vector<const Key*> keys;
  for (const Key& key : Keys()) {
    if (key.name != std::string("config")) keys.push_back(&key);
  }
  return keys;
}

TEST_F(ConfigTest, EveryKeyIsAFlagAVariableAndAKeyOfTheFile) {
  for (const Key* const key : FileKeys()) {
    SCOPED_TRACE(key->name);
    const std::string right = SamplesOf(*key).right;
    Config expected;
    ASSERT_TRUE(SetKey(*key, {right}, &expected).ok());
    ASSERT_NE(KeyText(*key, expected), KeyText(*key, Config()));
    const std::string variable = EnvironmentName(*key);
    const auto flag = Load({absl::StrCat("--", key->name, "=", right)});
    const auto environment = Load({}, {variable + "=" + right});
    const auto file = LoadFile(InFile(*key, right));
    const std::size_t index = key - Keys().data();
    ASSERT_TRUE(flag.ok()) << flag.status();
    ASSERT_TRUE(environment.ok()) << environment.status();
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ(KeyText(*key, flag->config), KeyText(*key, expected));
    EXPECT_EQ(KeyText(*key, environment->config), KeyText(*key, expected));
    EXPECT_EQ(KeyText(*key, file->config), KeyText(*key, expected));
    EXPECT_EQ(flag->sources[index], "command line");
    EXPECT_EQ(environment->sources[index], variable);
    EXPECT_EQ(file->sources[index], path_ + ":1");
    EXPECT_THAT(environment->warnings, IsEmpty());
    // No key sets the field of another key.
    for (const Key* const other : FileKeys()) {
      if (other == key) continue;
      EXPECT_EQ(KeyText(*other, flag->config), KeyText(*other, Config()))
          << other->name;
    }
  }
}

TEST_F(ConfigTest, WrongTypesUnitsAndRangesNameTheKeyAndItsSource) {
  for (const Key* const key : FileKeys()) {
    const std::string variable = EnvironmentName(*key);
    for (const Wrong& wrong : SamplesOf(*key).wrong) {
      SCOPED_TRACE(absl::StrCat(key->name, " = ", wrong.text));
      const std::string start = absl::StrCat("--", key->name, ": ");
      const auto flag = Load({absl::StrCat("--", key->name, "=", wrong.text)});
      EXPECT_THAT(Message(flag.status()),
                  AllOf(StartsWith(start), HasSubstr(wrong.fact),
                        EndsWith(" (command line)")));
      const auto environment = Load({}, {variable + "=" + wrong.text});
      EXPECT_THAT(Message(environment.status()),
                  AllOf(StartsWith(start), HasSubstr(wrong.fact),
                        EndsWith(absl::StrCat(" (", variable, ")"))));
      const auto file = LoadFile("# first line\n" + InFile(*key, wrong.text));
      // A text that is not a number is either invalid TOML or has another type.
      if (IsNumber(*key)) {
        EXPECT_THAT(Message(file.status()),
                    AllOf(HasSubstr(key->name), HasSubstr(path_ + ":2")));
      } else {
        EXPECT_THAT(Message(file.status()),
                    AllOf(StartsWith(start), HasSubstr(wrong.fact),
                          EndsWith(absl::StrCat(" (", path_, ":2)"))));
      }
    }
  }
}

TEST_F(ConfigTest, ThePrintedConfigurationReadsBack) {
  std::vector<std::string> flags = {"--print-config"};
  for (const Key* const key : FileKeys()) {
    flags.push_back(absl::StrCat("--", key->name, "=", SamplesOf(*key).right));
  }
  flags.push_back("--listen=unix:/it's # [a] = {b}, c \\ \"d\"");
  for (const std::vector<std::string>& given :
       {flags, std::vector<std::string>{"--print-config"}}) {
    const auto printed = Load(given);
    ASSERT_TRUE(printed.ok()) << printed.status();
    EXPECT_EQ(printed->task, Task::kShow);
    WriteFile(printed->text);
    const auto again = Load({"--config", path_, "--print-config"});
    ASSERT_TRUE(again.ok()) << again.status() << printed->text;
    for (const Key* const key : FileKeys()) {
      EXPECT_EQ(KeyText(*key, again->config), KeyText(*key, printed->config));
      const bool none =
          key->no_empty && KeyText(*key, printed->config) == "\"\"";
      EXPECT_THAT(again->sources[key - Keys().data()],
                  StartsWith(none ? "default" : path_));
    }
  }
}

TEST_F(ConfigTest, ContradictingValuesAreReportedWithTheirSource) {
  const std::map<std::vector<std::string>, std::string> cases = {
      {{"--in-flight-bytes=1MiB"},
       "--in-flight-bytes: 1MiB; must hold one request: raise it, or lower "
       "--max-request-bytes (512MiB)"},
      {{"--listen=nonsense"}, "--listen: nonsense: expected host:port"},
      {{"--listen=0.0.0.0:0"}, "--listen: 0.0.0.0:0: plaintext off loopback"},
      {{"--admin=nonsense"}, "--admin: nonsense: expected host:port"},
      {{"--tls-cert=/a"}, "--tls-cert: is of no use alone"},
      {{"--tls-key=/a"}, "--tls-key: is of no use alone"},
      {{"--tls-client-ca=/a"}, "--tls-client-ca: is of no use without"},
      {{"--ready-file=/tmp"}, "--ready-file: cannot write /tmp: is a folder"},
      {{"--ready-file=/dev/null"},
       "--ready-file: cannot write /dev/null: is no file"},
      {{"--ready-file=/dev/null/ready"},
       "--ready-file: cannot write /dev/null/ready: "},
  };
  for (const auto& [flags, message] : cases) {
    const auto loaded = Load(flags);
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    EXPECT_THAT(Message(WithSource(CheckConfig(loaded->config), *loaded)),
                AllOf(StartsWith(message), EndsWith(" (command line)")));
  }
  EXPECT_TRUE(CheckConfig(Config()).ok());
}

TEST_F(ConfigTest, MoreMemoryOrThreadsThanTheMachineHasAreDoubts) {
  Config config;
  Limits& limits = config.server.limits;
  limits.in_flight_bytes = UsableMemory();
  limits.threads = UsableCpus();
  EXPECT_THAT(Doubts(config), IsEmpty());
  ++limits.in_flight_bytes;
  ++limits.threads;
  EXPECT_THAT(Doubts(config), ElementsAre(HasSubstr("--in-flight-bytes: "),
                                          HasSubstr("--threads: ")));
}

TEST_F(ConfigTest, TokensThatHaveAllExpiredAreADoubt) {
  Config config;
  config.server.token_file = path_;
  WriteFile(
      "ada one expires=2020-01-01T00:00:00Z\n"
      "bob two expires=2021-01-01T00:00:00Z\n");
  EXPECT_THAT(Doubts(config),
              ElementsAre(absl::StrCat(
                  "--token-file: ", path_,
                  ": all tokens have expired, the last one on "
                  "2021-01-01T00:00:00+00:00; calls that need one are "
                  "refused")));
  WriteFile("ada one expires=2020-01-01T00:00:00Z\nbob two\n");
  EXPECT_THAT(Doubts(config), IsEmpty());
}

TEST_F(ConfigTest, AuthoritiesThatOnlyTheProbeTrustsAreADoubt) {
  Config config;
  config.probe_tls.ca = "/ca.pem";
  EXPECT_THAT(Doubts(config), ElementsAre(HasSubstr("--tls-client-ca")));
  config.server.tls.client_ca = "/clients.pem";
  EXPECT_THAT(Doubts(config), IsEmpty());
}

TEST_F(ConfigTest, OnlyReloadableKeysAreTaken) {
  Config running, fresh;
  fresh.server.limits.max_waiting = 5;
  fresh.log.level = "debug";
  fresh.server.limits.threads = 3;
  const ConfigChanges changes = TakeChanges(fresh, &running);
  ASSERT_EQ(changes.taken.size(), 2u);
  EXPECT_STREQ(changes.taken[0].key, "max-waiting");
  EXPECT_EQ(changes.taken[0].values, "1024 -> 5");
  EXPECT_STREQ(changes.taken[1].key, "log-level");
  EXPECT_EQ(changes.taken[1].values, "\"info\" -> \"debug\"");
  EXPECT_THAT(changes.ignored, ElementsAre("threads"));
  EXPECT_EQ(running.server.limits.max_waiting, 5);
  EXPECT_EQ(running.log.level, "debug");
  EXPECT_EQ(running.server.limits.threads, 0);
  EXPECT_THAT(TakeChanges(running, &running).taken, IsEmpty());
}

TEST_F(ConfigTest, KeysDoNotDifferInTheirVariables) {
  std::map<std::string, std::string> names;
  for (const Key& key : Keys()) {
    EXPECT_TRUE(names.emplace(EnvironmentName(key), key.name).second);
    EXPECT_TRUE(absl::StrContains(KeysTable(), absl::StrCat("`", key.name)));
    EXPECT_THAT(std::string(key.meaning), EndsWith("."));
  }
}

}  // namespace
}  // namespace posenc::server
