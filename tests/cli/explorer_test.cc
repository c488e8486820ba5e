// The explorer's page and calls over HTTP: its own page may call, and other
// pages may not.

#include "client/tools/explorer/explorer.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "nlohmann/json.hpp"
#include "server/service/server.h"
#include "tests/fixtures/http2.h"

namespace posenc::explorer {
namespace {

using Json = nlohmann::json;
using server::Server;
using server::ServerOptions;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr char kTyped[] = "Content-Type: application/json\r\n";

class ExplorerTest : public testing::Test {
 protected:
  void SetUp() override {
    auto server = Server::Start(ServerOptions());
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    auto explorer = Explorer::Start(0, Client(server_->InProcessChannel()));
    ASSERT_TRUE(explorer.ok()) << explorer.status();
    explorer_ = *std::move(explorer);
  }

  http2::Socket Connect() const { return http2::Socket(explorer_->address()); }
  // Returns the head of a POST, up to its empty line.
  std::string Head(const std::string& method, std::size_t length,
                   const std::string& headers = kTyped) const {
    return absl::StrCat("POST /v1/", method,
                        " HTTP/1.1\r\nHost: ", explorer_->address(),
                        "\r\nConnection: close\r\n", "Content-Length: ", length,
                        "\r\n", headers, "\r\n");
  }
  std::string Post(const std::string& method, const std::string& body,
                   const std::string& headers = kTyped) const {
    return Connect().Ask(Head(method, body.size(), headers) + body);
  }
  std::string Get(const std::string& path,
                  const std::string& headers = "") const {
    return Connect().Ask(
        absl::StrCat("GET ", path, " HTTP/1.1\r\nHost: ", explorer_->address(),
                     "\r\nConnection: close\r\n", headers, "\r\n"));
  }

  static std::string BodyOf(const std::string& response) {
    const std::size_t end = response.find("\r\n\r\n");
    return end == std::string::npos ? "" : response.substr(end + 4);
  }
  static Json JsonOf(const std::string& response) {
    return Json::parse(BodyOf(response), nullptr, false);
  }
  // Expects an error as `posenc --json` prints it.
  static void ExpectError(const std::string& response, const std::string& code,
                          const std::string& part) {
    EXPECT_THAT(response, StartsWith("HTTP/1.1 400 "));
    EXPECT_THAT(response, HasSubstr("Content-Type: application/json\r\n"));
    const Json json = JsonOf(response);
    ASSERT_TRUE(json.is_object()) << response;
    EXPECT_EQ(json["error"]["code"], code) << response;
    EXPECT_TRUE(json["error"].contains("reason"));
    EXPECT_THAT(json["error"]["message"].get<std::string>(), HasSubstr(part));
  }

  std::unique_ptr<Server> server_;
  std::unique_ptr<Explorer> explorer_;
};

const char kLlama[] = R"({"rope":{"preset":"llama-3.1-8b"}})";

TEST_F(ExplorerTest, AnswersInTheContractsJson) {
  const std::string response = Post("resolve", kLlama);
  EXPECT_THAT(response, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(response, HasSubstr("X-Content-Type-Options: nosniff\r\n"));
  EXPECT_THAT(response, HasSubstr("Cache-Control: no-store\r\n"));
  const Json resolved = JsonOf(response);
  EXPECT_EQ(resolved["head_dim"], 128);
  EXPECT_EQ(resolved["inv_freq"].size(), 64u);
  EXPECT_EQ(resolved["content_hash"].get<std::string>().size(), 64u);
  // Both spellings of a field are accepted, as in protobuf's JSON.
  EXPECT_EQ(JsonOf(Post("analyze", R"({"rope":{"preset":"llama-3.1-8b"},
                                       "maxDistance":"3"})"))["decay"]
                .size(),
            4u);
  EXPECT_THAT(JsonOf(Post("info", "{}"))["presets"].dump(),
              HasSubstr("llama-3.1-8b"));
}

TEST_F(ExplorerTest, TablesAreThoseOfTheContractUpToTheirBound) {
  const auto ask = [&](int rows) {
    return Post("table",
                absl::StrCat(R"({"rope":{"preset":"llama-3.1-8b"},"rows":)",
                             rows, R"(,"positions":{"start":0}})"));
  };
  const Json table = JsonOf(ask(3));
  EXPECT_EQ(table["amplitude"], 1);
  EXPECT_EQ(table["cos"]["shape"], Json({"3", "64"}));
  EXPECT_FALSE(table.contains("table"));
  // 512 x 256 cells of 64 columns are 2048 rows.
  EXPECT_THAT(ask(2048), StartsWith("HTTP/1.1 200 "));
  ExpectError(ask(2049), "RESOURCE_EXHAUSTED", "131072");
  ExpectError(ask(2000000000), "RESOURCE_EXHAUSTED", "131072");
  // The field's name is as in the body.
  ExpectError(ask(-1), "INVALID_ARGUMENT", "rows");
  EXPECT_THAT(JsonOf(ask(-1))["error"]["message"].get<std::string>(),
              Not(HasSubstr("table.")));
}

TEST_F(ExplorerTest, ErrorsAreThoseOfTheCall) {
  const std::string response =
      Post("resolve", R"({"rope":{"preset":"nobody"}})");
  ExpectError(response, "NOT_FOUND", "rope.preset");
  const Json error = JsonOf(response)["error"];
  EXPECT_EQ(error["reason"], "ERROR_REASON_PRESET_UNKNOWN");
  EXPECT_EQ(error["request_id"].get<std::string>().size(), 32u);
  ExpectError(Post("resolve", R"({"rope":{"configJson":"{"}})"),
              "INVALID_ARGUMENT", "config_json");
}

TEST_F(ExplorerTest, RefusesBodiesThatAreNoMessages) {
  for (const std::string& body : std::vector<std::string>{
           "", "{", "[]", "1", "\"x\"", "nul", "{\"rope\":", "{'rope':1}",
           R"({"rope":1})", R"({"rope":[]})", R"({"head_dim":"x"})",
           R"({"head_dim":1e99})", R"({"unknown":1})",
           R"({"rope":{"preset":"a","spec":{},"unknown":1}})", "\xff\xfe",
           std::string(1, '\0'), std::string(100, '\0'),
           std::string(100000, '['), "{\"rope\":" + std::string(100000, '{')}) {
    ExpectError(Post("resolve", body), "INVALID_ARGUMENT", "body: ");
  }
  // 10,000 deep inside of a field that is a list.
  std::string deep = R"({"rope":{"spec":{"explicit":{"values":)";
  deep += std::string(10000, '[') + std::string(10000, ']') + "}}}}";
  ExpectError(Post("resolve", deep), "INVALID_ARGUMENT", "body: ");
  // For the body's parser, configJson is a string without nesting; the reader
  // of configurations refuses its nesting.
  ExpectError(Post("resolve", absl::StrCat(R"({"rope":{"configJson":")",
                                           std::string(10000, '['), "\"}}")),
              "INVALID_ARGUMENT", "config_json");
}

TEST_F(ExplorerTest, BodiesHaveABound) {
  const std::string longest =
      std::string(kMaxBodyBytes - std::string(kLlama).size(), ' ') + kLlama;
  EXPECT_THAT(Post("resolve", longest), StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(Post("resolve", longest + " "), StartsWith("HTTP/1.1 413 "));
}

TEST_F(ExplorerTest, OnlyJsonIsTaken) {
  for (const std::string& type :
       {std::string(), std::string("Content-Type: text/plain\r\n"),
        std::string("Content-Type: application/x-www-form-urlencoded\r\n"),
        std::string("Content-Type: application/jsonp\r\n"),
        std::string("Content-Type: multipart/form-data; boundary=x\r\n")}) {
    EXPECT_THAT(Post("resolve", kLlama, type), StartsWith("HTTP/1.1 415 "))
        << type;
  }
  EXPECT_THAT(Post("resolve", kLlama,
                   "Content-Type: Application/JSON ; charset=utf-8\r\n"),
              StartsWith("HTTP/1.1 200 "));
}

TEST_F(ExplorerTest, OnlyItsOwnPageMayAsk) {
  const std::string& own = explorer_->address();
  const auto ask = [&](const std::string& header) {
    return Post("resolve", kLlama, absl::StrCat(kTyped, header, "\r\n"));
  };
  EXPECT_THAT(ask(absl::StrCat("Origin: http://", own)),
              StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(ask("Sec-Fetch-Site: same-origin"), StartsWith("HTTP/1.1 200 "));
  for (const std::string& header :
       {std::string("Origin: null"), std::string("Origin: http://evil.example"),
        std::string("Origin: http://"), std::string("Origin: http://127.0.0.1"),
        absl::StrCat("Origin: http://", own, ".evil.example"),
        absl::StrCat("Origin: http://evil.example@", own),
        absl::StrCat("Origin: file://", own),
        std::string("Sec-Fetch-Site: cross-site"),
        std::string("Sec-Fetch-Site: same-site")}) {
    EXPECT_THAT(ask(header), StartsWith("HTTP/1.1 403 ")) << header;
  }
  const std::string host = absl::StrCat(
      "POST /v1/resolve HTTP/1.1\r\nHost: evil.example\r\n",
      "Connection: close\r\nContent-Length: 2\r\n", kTyped, "\r\n{}");
  EXPECT_THAT(Connect().Ask(host), StartsWith("HTTP/1.1 403 "));
}

TEST_F(ExplorerTest, MethodsHaveTheirVerb) {
  EXPECT_THAT(Get("/v1/resolve"), StartsWith("HTTP/1.1 405 "));
  for (const char* path : {"/v1/", "/v1", "/v1/apply", "/v1/info/",
                           "/v1/resolve%20", "/metrics"}) {
    EXPECT_THAT(Get(path), StartsWith("HTTP/1.1 404 ")) << path;
  }
  EXPECT_THAT(Connect().Ask(absl::StrCat("OPTIONS /v1/resolve HTTP/1.1\r\n",
                                         "Host: ", explorer_->address(),
                                         "\r\nConnection: close\r\n\r\n")),
              StartsWith("HTTP/1.1 405 "));
}

TEST_F(ExplorerTest, ThePageIsOneFileThatLoadsNothing) {
  const std::string page = Get("/");
  EXPECT_THAT(page, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(page, HasSubstr("Content-Type: text/html; charset=utf-8\r\n"));
  EXPECT_THAT(page, HasSubstr("X-Content-Type-Options: nosniff\r\n"));
  EXPECT_THAT(page, HasSubstr("Content-Security-Policy: default-src 'none'; "
                              "script-src 'sha256-"));
  EXPECT_THAT(page, HasSubstr("connect-src 'self'"));
  EXPECT_THAT(page, HasSubstr("frame-ancestors 'none'"));
  EXPECT_THAT(page, Not(HasSubstr("unsafe")));
  EXPECT_THAT(BodyOf(page), StartsWith("<!doctype html>"));
  EXPECT_THAT(BodyOf(page), EndsWith("</html>\n"));
  for (const char* loaded : {" src=", " href=\"http", "@import", "url("}) {
    EXPECT_THAT(BodyOf(page), Not(HasSubstr(loaded)));
  }
}

TEST_F(ExplorerTest, PeersThatDisconnectLeaveNothingBehind) {
  for (int i = 0; i < 20; ++i) {
    http2::Socket peer = Connect();
    peer.Send(Head("analyze", std::string(kLlama).size()) + kLlama);
  }
  EXPECT_THAT(Post("resolve", kLlama), StartsWith("HTTP/1.1 200 "));
}

TEST_F(ExplorerTest, TwoDoNotShareAPort) {
  int port = 0;
  ASSERT_TRUE(absl::SimpleAtoi(
      explorer_->address().substr(explorer_->address().find(':') + 1), &port));
  const auto second =
      Explorer::Start(port, Client(server_->InProcessChannel()));
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.status().message()),
              HasSubstr("another program may have it"));
}

}  // namespace
}  // namespace posenc::explorer
