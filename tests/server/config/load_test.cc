// Users' configurations: their meaning, and their errors.

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "server/base/machine.h"
#include "tests/server/config/config_fixture.h"

namespace posenc::server {
namespace {

using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

struct Given {
  std::vector<std::string> flags;
  std::vector<std::string> environment;
  std::string file;  // "": none
};

class LoadTest : public ConfigTest {
 protected:
  absl::StatusOr<LoadedConfig> LoadGiven(Given given) {
    if (!given.file.empty()) {
      WriteFile(given.file);
      given.flags.insert(given.flags.end(), {"--config", path_});
    }
    return Load(given.flags, given.environment);
  }
  // Returns a text with the file's name instead of '%'.
  std::string Named(const std::string& text) {
    return absl::StrReplaceAll(text, {{"%", path_}});
  }
};

TEST_F(LoadTest, EveryValueIsPrintedWithItsSource) {
  struct Case {
    Given given;
    std::vector<std::string> lines;
  };
  const Case cases[] = {
      // Flags override the environment, which overrides the file.
      {{{"--max-waiting", "3", "--max-request-bytes", "1048576"},
        {"POSENC_MAX_WAITING=2", "POSENC_THREADS=2", "POSENC_LAME_DUCK=90s"},
        "max-waiting = 1\nthreads = 1\ndrain-timeout = \"1s\"\n"},
       {"max-waiting = 3  # command line", "threads = 2  # POSENC_THREADS",
        "drain-timeout = \"1s\"  # %:3",
        "lame-duck = \"1m30s\"  # POSENC_LAME_DUCK",
        "max-request-bytes = \"1MiB\"  # command line",
        "max-concurrent-streams = 100  # default"}},
      // The list of a stronger source replaces the whole list of a weaker
      // source.
      {{{}, {}, "listen = [\"a:1\", \"b:2\"]"},
       {"listen = [\"a:1\", \"b:2\"]  # %:1"}},
      {{{}, {"POSENC_LISTEN=c:3,d:4"}, "listen = [\"a:1\", \"b:2\"]"},
       {"listen = [\"c:3\", \"d:4\"]  # POSENC_LISTEN"}},
      {{{"--listen", "e:5", "--listen", "f:6", "g:7"},
        {"POSENC_LISTEN=c:3,d:4"},
        "listen = \"a:1\""},
       {"listen = [\"e:5\", \"f:6\", \"g:7\"]  # command line"}},
      // A switch needs no value; an empty variable counts as unset.
      {{{"--allow-insecure", "--threads", "2"}, {"POSENC_MAX_WAITING="}, ""},
       {"allow-insecure = true  # command line",
        "max-waiting = 1024  # default"}},
      {{{"--reflection", "off"}, {}, ""},
       {"reflection = false  # command line"}},
      // "off" is the word of --help for no value, and means no value.
      {{{"--admin", "off"}, {"POSENC_OTLP_ENDPOINT=off"}, ""},
       {"admin = \"\"  # command line; off",
        "otlp-endpoint = \"\"  # POSENC_OTLP_ENDPOINT; off"}},
      // Automatic values.
      {{{}, {"POSENC_MAX_CONNECTIONS=0"}, "# nothing\n"},
       {absl::StrCat("threads = 0  # default; chosen automatically: ",
                     UsableCpus()),
        "shared-memory-bytes = 0  # default; a quarter of the memory",
        "in-flight-bytes-per-token = 0  # default; no limit of its own"}},
      // Common TOML.
      {{{},
        {},
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
        "connection = { age = '1s', age-grace = \"2s\" }\n"},
       {"listen = [\"unix:/a#b\", \"[::1]:5\"]  # %:2",
        "max-waiting = 1000  # %:6", "drain-timeout = \"1m17s\"  # %:7",
        "max-request-bytes = \"1MiB\"  # %:8", "allow-insecure = true  # %:9",
        "token-file = \"/with space, comma and = sign\"  # %:10",
        "public-methods = []  # %:11", "tls-cert = \"/a\"  # %:15",
        "tls-key = \"/b\"  # %:16", "keepalive-time = \"5s\"  # %:18",
        "log-level = \"debug\"  # %:20", "log-calls = 0.5  # %:21",
        "max-connection-age = \"1s\"  # %:23",
        "max-connection-age-grace = \"2s\"  # %:23"}},
      // Strings and comments may have characters beyond ASCII.
      {{{},
        {},
        "# {[}]\r\nlisten = [\"unix:/\\\"\xC3\xA9\",  # \xC3\xA9\n  "
        "'unix:/\xC3\xA9']"},
       {"listen = [\"unix:/\\\"\xC3\xA9\", \"unix:/\xC3\xA9\"]  # %:2"}},
      {{{}, {}, "admin = \"\"\"\xC3\xA9\"\"\"  # \xC3\xA9"},
       {"admin = \"\xC3\xA9\"  # %:1"}},
  };
  for (Case each : cases) {
    each.given.flags.insert(each.given.flags.begin(), "--print-config");
    const auto loaded = LoadGiven(each.given);
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    for (const std::string& line : each.lines) {
      EXPECT_THAT(loaded->text, HasSubstr(Named("\n" + line + "\n")));
    }
  }
  WriteFile("max-waiting = 7");
  const auto loaded = Load({}, {"POSENC_CONFIG=" + path_});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->config.server.limits.max_waiting, 7);
}

TEST_F(LoadTest, MistakesHaveTheirSource) {
  struct Case {
    Given given;
    std::string error;
  };
  const std::string no_value =
      ": '' is no value; give a file, or leave the key out (";
  const Case cases[] = {
      {{{"--no-such-flag"}, {}, ""}, "--no-such-flag: there is no such flag"},
      {{{"--max-waiting-calls", "5"}, {}, ""},
       "--max-waiting-calls: there is no such flag"},
      {{{"serve"}, {}, ""}, "serve: there is no such argument"},
      {{{"--threads", "1", "--threads", "1"}, {}, ""},
       "--threads: was given more than once"},
      {{{"--allow-insecure", "--allow-insecure"}, {}, ""},
       "--allow-insecure: was given more than once"},
      {{{"--threads"}, {}, ""}, "--threads"},
      {{{"--listen"}, {}, ""}, "--listen"},
      {{{"--ready-file=", "--listen", "127.0.0.1:0"}, {}, ""},
       "--ready-file: '--ready-file=' has no value"},
      {{{"--listen=", "--threads=2"}, {}, ""},
       "--listen: '--listen=' has no value"},
      {{{"--token-file", ""}, {}, ""}, "--token-file: '' is no value"},
      {{{"--allow-insecure", ""}, {}, ""}, "--allow-insecure: '' is no value"},
      {{{"--max-waiting", "", "--threads", "1"}, {}, ""},
       "--max-waiting: '' is no value"},
      {{{""}, {}, ""}, "'': '' is no value"},
      {{{"--token-file=a\nb"}, {}, ""},
       "--token-file: 'a\\nb'; must not contain control characters"},
      {{{"--listen=a\x7f"}, {}, ""},
       "--listen: 'a\\x7f'; must not contain control characters"},
      {{{}, {}, "token-file = \"a\\nb\""},
       "--token-file: 'a\\nb'; must not contain control characters (%:1)"},
      // An empty value does not switch off security, even if a flag overrides
      // it.
      {{{}, {"POSENC_TLS_CERT="}, ""},
       "--tls-cert" + no_value + "POSENC_TLS_CERT)"},
      {{{}, {}, "\ntls-key = \"\""}, "--tls-key" + no_value + "%:2)"},
      {{{"--tls-client-ca=/a"}, {}, "tls-client-ca = ''"},
       "--tls-client-ca" + no_value + "%:1)"},
      {{{}, {"POSENC_TLS_CA="}, ""}, "--tls-ca" + no_value + "POSENC_TLS_CA)"},
      {{{"--token-file=/a"}, {}, "token.file = \"\""},
       "--token-file" + no_value + "%:1)"},
      {{{"--threads", "1"}, {}, "threads = \"many\""},
       "--threads: is a string"},
      {{{"--config", "/nonexistent/posenc.toml"}, {}, ""},
       "--config: /nonexistent/posenc.toml: No such file or directory"},
      {{{"--config", "/tmp"}, {}, ""}, "--config: /tmp: Is a directory"},
      {{{}, {}, std::string((1 << 20) + 1, '#')},
       "--config: %: is larger than 1 MiB"},
  };
  for (const auto& [given, error] : cases) {
    const std::string message = Message(LoadGiven(given).status());
    EXPECT_THAT(message, StartsWith(Named(error)));
    if (given.file.empty() && given.environment.empty() &&
        given.flags[0] != "--config") {
      EXPECT_THAT(message, EndsWith(" (command line)"));
    }
  }
}

TEST_F(LoadTest, MistakesInTheFileHaveTheirLine) {
  const std::string e = "\xC3\xA9";
  struct Case {
    std::string file, error;
  };
  const Case cases[] = {
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
      {"probe = \"\xff\"", "--config: %:1: probe: "},
      {std::string("threads = \0 5", 13), "--config: %:1: threads: "},
      {std::string("probe = \"\0\"", 11), "--config: %:1: probe: "},
      {"a" + absl::StrReplaceAll(std::string(100000, 'x'), {{"x", ".a"}}) +
           " = 1",
       "--config: %: more than 2000 dots"},
      // toml++ has undefined behaviour for the following texts.
      {"[]", "--config: %:1: []: "},
      {"\n[\x03", "--config: %:2: [\\x03: "},
      {"\n[=]", "--config: %:2: ["},
      {"\n[", "--config: %:2: [: "},
      {"\n[[", "--config: %:2: [[: "},
      {"\n[ \t#]", "--config: %:2: [ "},
      {"\n[.a]", "--config: %:2: [.a]: "},
      {"\n[\va]", "--config: %:2: ["},
      {"\n[[ \n]]", "--config: %:2: [["},
      {"listen = [}", "--config: %:1: listen: "},
      {"listen = [\"a\", }", "--config: %:1: listen: "},
      {"listen = [ # b\n}", "--config: %:2: listen: "},
      {"\v", "--config: %:1: "},
      {"listen = [\f]", "--config: %:1: listen: "},
      {"listen = \"a\vb\"", "--config: %:1: listen: "},
      {"# \x7f", "--config: %:1: "},
      {"\n[" + e + "]", "--config: %:2: ["},
      {"\n" + e + " = 1", "--config: %:2: "},
      {"threads = 0@'" + e + "'", "--config: %:1: threads: "},
      {"threads == '" + e + "'", "--config: %:1: threads: "},
      {"\"a\".\"#'\" " + e, "--config: %:1: "},
      {"listen = [\"a\" \"#\" " + e, "--config: %:1: listen: "},
      {"threads = " + e, "--config: %:1: threads: "},
      {"threads = 1 \xEF\xBB\xAF", "--config: %:1: threads: "},
      {"listen = \"unix:/\\\"\" " + e, "--config: %:1: listen: "},
      {"listen = 'unix:/\\' " + e, "--config: %:1: listen: "},
      {"threads = 1 \xC3", "--config: %:1: threads: "},
      {"listen = [\"\"\"a\"\"\"\"" + e + "\"]", "--config: %:1: listen: "},
  };
  for (const auto& [file, error] : cases) {
    SCOPED_TRACE(file.substr(0, 100));
    const std::string message = Message(LoadFile(file).status());
    EXPECT_THAT(message, StartsWith(Named(error)));
    const bool ascii = std::all_of(file.begin(), file.end(), [](char c) {
      return absl::ascii_isascii(static_cast<unsigned char>(c));
    });
    EXPECT_EQ(absl::StrContains(message, "beyond ASCII"), !ascii) << message;
  }
}

TEST_F(LoadTest, LongValuesAreShortenedInErrors) {
  const std::string words(1 << 19, 'x');
  for (const std::string& file :
       {"listen = [\"" + words + "\"]", "admin = \"" + words + "\"",
        "token-file = \"" + words + "\"", words + " = 1", "[" + words + "]"}) {
    const auto loaded = LoadFile(file);
    EXPECT_LT(Message(loaded.status()).size(), 1500u);
    EXPECT_THAT(Message(loaded.status()), HasSubstr("xxx..."));
  }
}

TEST_F(LoadTest, KeysWithoutEffectCauseAWarning) {
  struct Case {
    Given given;
    std::string warning;
  };
  const Case cases[] = {
      {{{"--headers-timeout", "5s"}, {}, ""},
       "--headers-timeout: does nothing any more (command line)"},
      {{{}, {}, "first-call-timeout = \"30s\"\n"},
       "--first-call-timeout: does nothing any more (%:1)"},
      {{{},
        {"POSENC_SERVICE_HOST=10.0.0.1", "POSENC_PORT=tcp://10.0.0.1:50051",
         "POSENC_PORT_50051_TCP_ADDR=10.0.0.1", "POSENC_FORCE_ISA=sse2",
         "HOME=/", "POSENC_MAX_WAITING="},
        ""},
       "POSENC_SERVICE_HOST, POSENC_PORT, POSENC_PORT_50051_TCP_ADDR are "
       "unknown; Kubernetes sets such variables for a Service named posenc"},
  };
  for (const auto& [given, warning] : cases) {
    const auto loaded = LoadGiven(given);
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    EXPECT_THAT(loaded->warnings, ElementsAre(Named(warning)));
  }
}

}  // namespace
}  // namespace posenc::server
