// Requests to the admin server and their responses, without sockets.

#include "server/admin/http.h"

#include <stdexcept>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "gmock/gmock.h"

namespace posenc::server {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

class AdminHttpTest : public testing::Test {
 protected:
  AdminHttpTest()
      : http_({.metrics = [this] { return metrics_; },
               .config = []() -> std::string {
                 throw std::runtime_error("a secret");
               },
               .ready = [this] { return ready_; }},
              {"posenc-admin.example"}) {}

  // Returns the response to a request with this head, as text.
  std::string React(absl::string_view head) {
    const std::vector<absl::string_view> lines =
        absl::StrSplit(head, "\r\n", absl::SkipEmpty());
    const std::vector<std::string> words = absl::StrSplit(lines[0], ' ');
    AdminRequest request{words[0], words[1], words[2], {}};
    for (std::size_t i = 1; i < lines.size(); ++i) {
      absl::string_view line = lines[i];
      if (absl::ConsumePrefix(&line, "Host: "))
        request.hosts.emplace_back(line);
    }
    const AdminResponse response = http_.Answer(request);
    std::string text = absl::StrCat("HTTP/1.1 ", response.status, " \r\n");
    for (const auto& [name, value] : response.headers) {
      absl::StrAppend(&text, name, ": ", value, "\r\n");
    }
    return absl::StrCat(text, "\r\n", response.body);
  }
  std::string Ask(const std::string& line, const std::string& headers = "") {
    return React(absl::StrCat(line, " HTTP/1.1\r\nHost: 10.0.0.7:9090\r\n",
                              headers, "\r\n"));
  }
  std::string AskHost(const std::string& host) {
    return React(absl::StrCat("GET /healthz HTTP/1.1\r\n", host, "\r\n"));
  }

  bool ready_ = true;
  std::string metrics_ = "a 1\n";
  AdminHttp http_;
};

TEST_F(AdminHttpTest, ServesItsPages) {
  EXPECT_THAT(Ask("GET /healthz"), StartsWith("HTTP/1.1 200 "));
  const std::string metrics = Ask("GET /metrics");
  EXPECT_THAT(metrics, StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(metrics,
              HasSubstr("Content-Type: text/plain; version=0.0.4\r\n"));
  EXPECT_THAT(metrics, EndsWith("\r\n\r\na 1\n"));
}

TEST_F(AdminHttpTest, ReadyzFollowsReadiness) {
  EXPECT_THAT(Ask("GET /readyz"), StartsWith("HTTP/1.1 200 "));
  ready_ = false;
  EXPECT_THAT(Ask("GET /readyz"), StartsWith("HTTP/1.1 503 "));
  EXPECT_THAT(Ask("GET /healthz"), StartsWith("HTTP/1.1 200 "));
}

TEST_F(AdminHttpTest, OtherPathsAreNotFound) {
  for (const char* path :
       {"/", "/metrics/", "/metrics%00", "//metrics", "/../metrics",
        "/channelz/x", "/channelz/server/0", "/channelz/server/x/sockets",
        "/channelz/socket/99999999999999999999", "/channelz/socket/-1", "*"}) {
    EXPECT_THAT(Ask(absl::StrCat("GET ", path)), StartsWith("HTTP/1.1 404 "))
        << path;
  }
}

TEST_F(AdminHttpTest, OtherVerbsAreNotAllowed) {
  for (const char* verb :
       {"POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT"}) {
    const std::string response =
        Ask(absl::StrCat(verb, " /metrics"),
            "Content-Length: 4000000000\r\nExpect: nothing\r\n");
    EXPECT_THAT(response, StartsWith("HTTP/1.1 405 ")) << verb;
    EXPECT_THAT(response, HasSubstr("Allow: GET, HEAD\r\n")) << verb;
  }
}

TEST_F(AdminHttpTest, RefusesUnknownHosts) {
  EXPECT_THAT(AskHost("Host: evil.example:9090\r\n"),
              StartsWith("HTTP/1.1 403 "));
  EXPECT_THAT(AskHost("Host: evil.example:9090\r\n"),
              Not(HasSubstr("evil.example")));
  EXPECT_THAT(AskHost("Host: 127.0.0.1\r\nHost: 127.0.0.1\r\n"),
              StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(AskHost(""), StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(AskHost("Host: Posenc-Admin.example:9090\r\n"),
              StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(React("GET /healthz HTTP/1.0\r\n\r\n"),
              StartsWith("HTTP/1.1 200 "));
}

TEST_F(AdminHttpTest, AnExceptionOfAPageIsNotShown) {
  const std::string response = Ask("GET /config");
  EXPECT_THAT(response, StartsWith("HTTP/1.1 500 "));
  EXPECT_THAT(response, Not(HasSubstr("a secret")));
}

TEST(HostAllowed, TakesAddressesAndItsNames) {
  const std::vector<std::string> names = {"posenc.svc", ""};
  for (const char* host :
       {"10.1.2.3:9090", "10.1.2.3", "[::1]:9090", "[fd00::7]", "localhost",
        "LocalHost:1", "POSENC.svc:9090"}) {
    EXPECT_TRUE(HostAllowed(host, names)) << host;
  }
  for (const char* host :
       {"evil.example", "localhost.evil.example", "10.1.2.3.evil.example",
        "10.1.2", "0x7f.1", "[::1].evil.example", "[::1", "[evil.example]:80",
        "::1", "localhost:", "localhost:x", "localhost:123456",
        "posenc.svc:9090:1", "user@localhost", "localhost, evil.example"}) {
    EXPECT_FALSE(HostAllowed(host, names)) << host;
  }
  EXPECT_FALSE(HostAllowed(absl::string_view("1.2.3.4\0.evil", 13), names));
}

}  // namespace
}  // namespace posenc::server
