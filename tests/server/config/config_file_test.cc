// The file of the configuration: TOML as users expect it, and what is wrong in
// it.

#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "tests/server/config/config_fixture.h"

namespace posenc::server {
namespace {

using testing::AnyOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

class ConfigFileTest : public ConfigTest {};

TEST_F(ConfigFileTest, TheFileIsTomlAsUsersExpectIt) {
  const auto loaded = LoadFile(
      "\xEF\xBB\xBF# a comment\r\n"
      "listen = [ 'unix:/a#b' , # the first\n"
      "  \"[::1]:5\",\n"
      "\n"
      "]\r\n"
      "\"max-waiting\" = 1_000 # thousand\n"
      "drain.timeout = \"\"\"77s\"\"\"\n"
      "max-request-bytes=1048576\n"
      "allow-insecure = true\n"
      "token-file = \"/with space, comma and = sign\"\n"
      "public-methods = []\n"
      "\n"
      "[admin]\n"
      "[tls]\n"
      "cert = \"/a\"\n"
      "key = '/b'\n"
      "[ keepalive ]\n"
      "time = \"5s\"  # seconds\n"
      "[log]\n"
      "level = \"de\\u0062ug\"\n"
      "calls = 0.5\n"
      "[max]\n"
      "connection = { age = '1s', age-grace = \"2s\" }\n");
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const Config& config = loaded->config;
  EXPECT_THAT(config.server.listen, ElementsAre("unix:/a#b", "[::1]:5"));
  EXPECT_EQ(config.server.limits.max_waiting, 1000);
  EXPECT_EQ(config.log.level, "debug");
  EXPECT_EQ(config.server.limits.max_request_bytes, 1 << 20);
  EXPECT_TRUE(config.server.allow_insecure);
  EXPECT_EQ(config.server.token_file, "/with space, comma and = sign");
  EXPECT_THAT(config.server.public_methods, IsEmpty());
  EXPECT_EQ(config.server.tls.cert, "/a");
  EXPECT_EQ(config.server.tls.key, "/b");
  EXPECT_EQ(config.server.connections.keepalive_time, absl::Seconds(5));
  EXPECT_EQ(config.log.calls, 0.5);
  EXPECT_EQ(config.server.drain_timeout, absl::Seconds(77));
  EXPECT_EQ(config.server.max_connection_age, absl::Seconds(1));
  EXPECT_EQ(config.server.max_connection_age_grace, absl::Seconds(2));
}

TEST_F(ConfigFileTest, WhatIsTooLongIsToldInOneLineThatIsNot) {
  const std::string words(1 << 19, 'x');
  for (const std::string& file :
       {"listen = [\"" + words + "\"]", "admin = \"" + words + "\"",
        "token-file = \"" + words + "\"", words + " = 1", "[" + words + "]"}) {
    const auto loaded = LoadFile(file);
    EXPECT_LT(Message(loaded.status()).size(), 1500u);
    EXPECT_THAT(Message(loaded.status()), HasSubstr("xxx..."));
  }
}

TEST_F(ConfigFileTest, WhatIsWrongInTheFileIsToldWithItsLine) {
  const std::map<std::string, std::string> cases = {
      {"\nmax-watiing = 5", "--max-watiing: there is no such key (%:2)"},
      {"[limits]\nthreads = 5", "--limits-threads: there is no such key (%:2)"},
      {"\n[tlss]\n[log]", "--tlss: there is no such table (%:2)"},
      {"[tls.certs]", "--tls-certs: there is no such table (%:1)"},
      {"[threads]", "--threads: there is no such table (%:1)"},
      {"config = \"/other\"", "--config: a file cannot name another (%:1)"},
      {"tls-key = \"a\"\n[tls]\nkey = \"b\"",
       "--tls-key: was set in line 1 already (%:3)"},
      {"threads = [1, 2]",
       "--threads: is an array; must be a whole number, "
       "without quotes (%:1)"},
      {"threads = \"5\"",
       "--threads: is a string; must be a whole number, "
       "without quotes (%:1)"},
      {"threads = 5.0",
       "--threads: is a number with a point; must be a whole "
       "number, without quotes (%:1)"},
      {"log-calls = \"0.5\"",
       "--log-calls: is a string; must be a number, without quotes (%:1)"},
      {"allow-insecure = 1",
       "--allow-insecure: is a whole number; must be true or false (%:1)"},
      {"lame-duck = 5",
       "--lame-duck: is a whole number; must be a time in "
       "quotes, as \"30s\" (%:1)"},
      {"in-flight-bytes = true",
       "--in-flight-bytes: is true or false; must be bytes as a whole number, "
       "or \"64MiB\" in quotes (%:1)"},
      {"probe = 5",
       "--probe: is a whole number; must be a string, in quotes "
       "(%:1)"},
      {"probe = 1979-05-27",
       "--probe: is of another type; must be a string, "
       "in quotes (%:1)"},
      {"threads = {}",
       "--threads: is of another type; must be a whole number, without quotes "
       "(%:1)"},
      {"listen = [\"a:1\", 5]",
       "--listen: holds what is a whole number; must "
       "be an array of strings (%:1)"},
      {"\n[[listen]]\na = 1", "--listen: holds what is of another type"},
      {"listen = []", "--listen: 0 values; must be 1 to 64 (%:1)"},
      // TOML's own errors, with the key.
      {"\nthreads = many", "--config: %:2: threads: "},
      {"log-level = debug", "--config: %:1: log-level: "},
      {"threads = 1 2", "--config: %:1: threads: "},
      {"listen = [\"a:1\" \"b:2\"]", "--config: %:1: listen: "},
      {"listen = [\n\"a:1\"\n\"b:2\"]", "--config: %:3: listen: "},
      {"threads = 5\n\nthreads = 5", "--config: %:3: threads: "},
      {"[tls]\ncert = \"a\"\n[tls]\nkey = \"b\"", "--config: %:3: [tls]: "},
      {"log.level = \"debug\"\n[log]\ncalls = 1", "--config: %:2: [log]: "},
      {"threads = 099", "--config: %:1: threads: "},
      {"threads", "--config: %:1: threads: "},
      {"threads =", "--config: %:1: threads: "},
      {"= 5", "--config: %:1: "},
      {"; threads = 5", "--config: %:1: "},
      {"\nprobe = \"x", "--config: %:2: probe: "},
      {"probe = \"x\ny\"", "--config: %:1: probe: "},
      {"probe = \"x\"y", "--config: %:1: probe: "},
      {"probe = \"\\q\"", "--config: %:1: probe: "},
      {"listen = \"a\"]", "--config: %:1: listen: "},
      {"[tls", "--config: %:1: [tls: "},
      {"[tls] cert = \"a\"", "--config: %:1: "},
      {"[]", "--config: %:1: []: "},
      {"probe = \"\xff\"", "--config: %:1: probe: "},
      {std::string("threads = \0 5", 13), "--config: %:1: threads: "},
      {std::string("probe = \"\0\"", 11), "--config: %:1: probe: "},
  };
  for (const auto& [text, message] : cases) {
    SCOPED_TRACE(text);
    const std::vector<std::string> parts = absl::StrSplit(message, '%');
    EXPECT_THAT(Message(LoadFile(text).status()),
                StartsWith(absl::StrJoin(parts, path_)));
  }
}

TEST_F(ConfigFileTest, AWrongValueInTheFileIsAnErrorEvenIfAFlagWins) {
  WriteFile("threads = \"many\"");
  EXPECT_THAT(Message(Load({"--config", path_, "--threads", "1"}).status()),
              HasSubstr(path_ + ":1"));
}

TEST_F(ConfigFileTest, AFileThatCannotBeReadIsToldByItsName) {
  for (const std::string path : {"/nonexistent/posenc.toml", "/tmp"}) {
    EXPECT_THAT(Message(Load({"--config", path}).status()),
                StartsWith("--config: " + path + ": "));
  }
  WriteFile(std::string((1 << 20) + 1, '#'));
  EXPECT_THAT(Message(Load({"--config", path_}).status()),
              HasSubstr("more than 1048576 bytes"));
}

// 100,000 of them overflowed the stack.
TEST_F(ConfigFileTest, KeysOfManyDotsAreRefused) {
  std::string text = "a";
  for (int i = 0; i < 100000; ++i) text += ".a";
  EXPECT_THAT(Message(LoadFile(text + " = 1").status()),
              HasSubstr("more than 2000 dots"));
}

// toml++ is undefined for them.
TEST_F(ConfigFileTest, ATablesHeaderWithoutANameIsRefused) {
  for (const std::string header : {"[\x03", "[=]", "[", "[[", "[ \t#]", "[.a]",
                                   "[\va]", "[[ \n]]", "[\xC3\xA9]"}) {
    EXPECT_THAT(Message(LoadFile("threads = 1\n" + header).status()),
                HasSubstr(path_ + ":2: ["))
        << header;
  }
  EXPECT_THAT(Message(LoadFile("[]").status()), HasSubstr(path_ + ":1: []: "));
}

// As well.
TEST_F(ConfigFileTest, StrayBracesAndControlCharactersAreRefused) {
  for (const std::string file :
       {"listen = [}", "listen = [\"a\", }", "listen = [ # b\n}", "\v",
        "listen = [\f]", "listen = \"a\vb\"", "# \x7f"}) {
    EXPECT_THAT(Message(LoadFile(file).status()),
                AnyOf(HasSubstr("a brace that closes nothing"),
                      HasSubstr("a control character")))
        << file;
  }
  EXPECT_TRUE(LoadFile("# a line of MS-DOS {[}]\r\nthreads = 1\r\n").ok());
}

// toml++ is undefined for them between words.
TEST_F(ConfigFileTest, CharactersBeyondAsciiAreInStringsAndComments) {
  const std::string e = "\xC3\xA9", presentation_form = "\xEF\xBB\xAF";
  const std::vector<std::string> wrong = {
      e + " = 1",
      "threads = 0@'" + e + "'",
      "threads == '" + e + "'",
      "\"a\".\"#'\" " + e,
      "listen = [\"a\" \"#\" " + e,
      "threads = " + e,
      "threads = 1 " + presentation_form,
      "listen = \"unix:/\\\"" + std::string("\" ") + e,
      "listen = 'unix:/\\' " + e,
      std::string("threads = 1 \xC3"),
      "listen = [\"\"\"a\"\"\"\"" + e + "\"]"};
  for (const std::string& line : wrong) {
    EXPECT_THAT(Message(LoadFile("# " + e + "\n" + line).status()),
                HasSubstr(path_ + ":"))
        << line;
    EXPECT_THAT(Message(LoadFile("# " + e + "\n" + line).status()),
                HasSubstr("beyond ASCII"))
        << line;
  }
  EXPECT_TRUE(
      LoadFile("\xEF\xBB\xBFlisten = \"unix:/\\\"" + e + "\"  # " + e).ok());
  EXPECT_TRUE(LoadFile("listen = [\"unix:/a\", 'unix:/" + e + "',\n  # " + e +
                       "\n  \"unix:/b" + e + "\"]")
                  .ok());
}

}  // namespace
}  // namespace posenc::server
