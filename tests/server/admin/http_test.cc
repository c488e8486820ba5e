// Requests to the admin server and their responses, without sockets.

#include "server/admin/http.h"

#include <stdexcept>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "server/admin/origin.h"

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

  std::string Ask(const std::string& line, const std::string& headers = "") {
    const std::string head = absl::StrCat(
        line, " HTTP/1.1\r\nHost: 10.0.0.7:9090\r\n", headers, "\r\n");
    EXPECT_EQ(JudgeHead(head), Head::kComplete);
    return http_.React(head).response;
  }
  std::string AskHost(const std::string& host) {
    return http_.React(absl::StrCat("GET /healthz HTTP/1.1\r\n", host, "\r\n"))
        .response;
  }

  bool ready_ = true;
  std::string metrics_ = "a 1\n";
  AdminHttp http_;
};

TEST_F(AdminHttpTest, ServesItsPages) {
  EXPECT_THAT(Ask("GET /healthz"), StartsWith("HTTP/1.1 200 OK\r\n"));
  const std::string metrics = Ask("GET /metrics");
  EXPECT_THAT(metrics, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(metrics,
              HasSubstr("Content-Type: text/plain; version=0.0.4\r\n"));
  EXPECT_THAT(metrics, HasSubstr("Connection: close\r\n"));
  EXPECT_THAT(metrics, EndsWith("\r\n\r\na 1\n"));
}

TEST_F(AdminHttpTest, ReadyzFollowsReadiness) {
  EXPECT_THAT(Ask("GET /readyz"), StartsWith("HTTP/1.1 200 "));
  ready_ = false;
  EXPECT_THAT(Ask("GET /readyz"), StartsWith("HTTP/1.1 503 "));
  EXPECT_THAT(Ask("GET /healthz"), StartsWith("HTTP/1.1 200 "));
}

TEST_F(AdminHttpTest, HeadHasNoBody) {
  const std::string response = Ask("HEAD /metrics");
  EXPECT_THAT(response, HasSubstr("Content-Length: 4\r\n"));
  EXPECT_THAT(response, EndsWith("\r\n\r\n"));
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

TEST_F(AdminHttpTest, AVerbThatHttpLacksIsABadRequest) {
  EXPECT_THAT(Ask("STEAL /metrics"), StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(Ask("PRI *"), StartsWith("HTTP/1.1 405 "));
  EXPECT_THAT(http_.React("PRI * HTTP/2.0\r\n\r\n").response,
              StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(
      http_.React("GET /metrics HTTP/1.1 x\r\nHost: ::\r\n\r\n").response,
      StartsWith("HTTP/1.1 400 "));
}

TEST_F(AdminHttpTest, RefusesOtherOrigins) {
  EXPECT_THAT(Ask("GET /metrics", "Origin: http://evil.example\r\n"),
              StartsWith("HTTP/1.1 403 "));
  EXPECT_THAT(Ask("GET /metrics", "origin: null\r\n"),
              StartsWith("HTTP/1.1 403 "));
  EXPECT_THAT(Ask("GET /metrics", "Sec-Fetch-Site: cross-site\r\n"),
              StartsWith("HTTP/1.1 403 "));
  // Typed into the browser's address bar.
  EXPECT_THAT(Ask("GET /metrics", "Sec-Fetch-Site: none\r\n"),
              StartsWith("HTTP/1.1 200 "));
}

TEST_F(AdminHttpTest, RefusesHostsThatItIsNot) {
  EXPECT_THAT(AskHost("Host: evil.example:9090\r\n"),
              StartsWith("HTTP/1.1 403 "));
  EXPECT_THAT(AskHost("Host: evil.example:9090\r\n"),
              Not(HasSubstr("evil.example")));
  EXPECT_THAT(AskHost("Host: 127.0.0.1\r\nHost: 127.0.0.1\r\n"),
              StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(AskHost(""), StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(AskHost("Host: Posenc-Admin.example:9090\r\n"),
              StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(http_.React("GET /healthz HTTP/1.0\r\n\r\n").response,
              StartsWith("HTTP/1.1 200 "));
}

TEST_F(AdminHttpTest, WhatAPageThrowsIsNotTold) {
  const std::string response = Ask("GET /config");
  EXPECT_THAT(response, StartsWith("HTTP/1.1 500 "));
  EXPECT_THAT(response, Not(HasSubstr("a secret")));
}

// A response of all these ranges would be a thousand pages long.
TEST_F(AdminHttpTest, RangesAreIgnored) {
  metrics_ = std::string(100000, 'x');
  std::string ranges = "bytes=0-";
  while (ranges.size() < 4000) ranges += ",0-";
  for (const std::string& line : {absl::StrCat("Range: ", ranges, "\r\n"),
                                  absl::StrCat("rANGE:", ranges, "\r\n"),
                                  absl::StrCat("a\nRange: ", ranges, "\r\n")}) {
    const std::string response = Ask("GET /metrics", line);
    EXPECT_THAT(response, StartsWith("HTTP/1.1 200 "));
    EXPECT_LT(response.size(), metrics_.size() + 1000);
  }
}

TEST_F(AdminHttpTest, CompressesWithGzipAlone) {
  metrics_ = std::string(100000, 'x');
  const std::string gzip =
      Ask("GET /metrics", "Accept-Encoding: br, gzip, deflate\r\n");
  EXPECT_THAT(gzip, HasSubstr("Content-Encoding: gzip\r\n"));
  EXPECT_LT(gzip.size(), 2000);
  EXPECT_GT(Ask("GET /metrics", "Accept-Encoding: br\r\n").size(), 100000);
}

TEST(JudgeHead, WaitsForTheEmptyLine) {
  const std::string head = "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n";
  for (std::size_t size = 0; size < head.size(); ++size) {
    EXPECT_EQ(JudgeHead(head.substr(0, size)), Head::kIncomplete) << size;
  }
  EXPECT_EQ(JudgeHead(head), Head::kComplete);
  EXPECT_EQ(JudgeHead(head + "body"), Head::kComplete);
}

TEST(JudgeHead, KnowsAtOnceWhatIsNotHttp) {
  // TLS, a line without blanks, lower case, gRPC without a preface.
  for (const std::string& bytes :
       {std::string("\x16\x03\x01\x02"), std::string("HELO\r\n"),
        std::string("get / HTTP/1.1\r\n"), std::string(9, '\0'),
        std::string("VERYLONGVERB")}) {
    EXPECT_EQ(JudgeHead(bytes), Head::kNotHttp) << bytes;
  }
}

TEST(JudgeHead, BoundsLineAndHead) {
  const std::string line =
      absl::StrCat("GET /", std::string(kMaxLineBytes, 'a'));
  EXPECT_EQ(JudgeHead(line), Head::kLineTooLong);
  EXPECT_EQ(JudgeHead(line + " HTTP/1.1\r\n\r\n"), Head::kLineTooLong);
  const std::string head =
      absl::StrCat("GET / HTTP/1.1\r\na: ", std::string(kMaxHeadBytes, 'a'));
  EXPECT_EQ(JudgeHead(head), Head::kTooLong);
  EXPECT_EQ(JudgeHead(head + "\r\n\r\n"), Head::kTooLong);
  std::string longest = "GET / HTTP/1.1\r\na: ";
  longest += std::string(kMaxHeadBytes - longest.size() - 4, 'a') + "\r\n\r\n";
  EXPECT_EQ(JudgeHead(longest), Head::kComplete);
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
