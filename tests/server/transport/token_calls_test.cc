// Every RPC of a server that requires tokens.

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "google/protobuf/descriptor.h"
#include "tests/fixtures/certificates.h"
#include "tests/fixtures/directory.h"
#include "tests/fixtures/server.h"

namespace posenc::server {
namespace {

using test::Eventually;
using testing::Contains;
using testing::HasSubstr;

constexpr char kFile[] =
    "ada good\n"
    "bob other methods=GetServerInfo\n"
    "eve late expires=2020-01-01T00:00:00Z\n";

class TokenCallsTest : public ServerTest {
 protected:
  void SetUp() override {
    options_.listen = {"127.0.0.1:0"};
    options_.token_file = files_.Write("tokens", kFile);
    options_.notice = [this](Notice, absl::string_view line) {
      const std::lock_guard<std::mutex> lock(mutex_);
      notices_.emplace_back(line);
    };
  }
  void TearDown() override { server_.reset(); }  // its notices use the members

  std::vector<std::string> notices() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return notices_;
  }

  static std::vector<std::string> Methods() {
    const google::protobuf::ServiceDescriptor* const service =
        v1::GetServerInfoRequest::descriptor()->file()->FindServiceByName(
            "PositionalEncodingService");
    std::vector<std::string> methods;
    for (int i = 0; i < service->method_count(); ++i) {
      methods.emplace_back(service->method(i)->name());
    }
    return methods;
  }

  grpc::Status Call(const std::string& method,
                    const std::map<std::string, std::string>& metadata) const {
    RawCall call(channel_,
                 absl::StrCat("/posenc.v1.PositionalEncodingService/", method),
                 metadata);
    call.WriteLast("");
    std::string response;
    call.Read(&response);
    return call.Finish();
  }
  grpc::Status CallAs(const std::string& method,
                      const std::string& token) const {
    return Call(method, {{"authorization", "Bearer " + token}});
  }

  static bool LetIn(const grpc::Status& status) {
    return status.error_code() != grpc::StatusCode::UNAUTHENTICATED &&
           status.error_code() != grpc::StatusCode::PERMISSION_DENIED;
  }

  const test::Directory files_;
  ServerOptions options_;

 private:
  std::mutex mutex_;
  std::vector<std::string> notices_;
};

TEST_F(TokenCallsTest, EveryMethodTakesTheRightTokenAndNoOther) {
  Start(options_);
  EXPECT_GE(Methods().size(), 13u);
  for (const std::string& method : Methods()) {
    SCOPED_TRACE(method);
    EXPECT_TRUE(LetIn(CallAs(method, "good")));
    for (const auto& [status, cause] :
         {std::pair{Call(method, {}), "missing"},
          {CallAs(method, "wrong"), "invalid"},
          {Call(method, {{"authorization", "Basic good"}}), "invalid"},
          {CallAs(method, "late"), "expired"}}) {
      EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAUTHENTICATED);
      const Details details = ReadDetails(status);
      EXPECT_EQ(details.reason, "ERROR_REASON_UNAUTHENTICATED");
      EXPECT_EQ(details.metadata.at("cause"), cause);
    }
    const grpc::Status other = CallAs(method, "other");
    EXPECT_EQ(LetIn(other), method == "GetServerInfo");
    if (method != "GetServerInfo") {
      EXPECT_EQ(other.error_code(), grpc::StatusCode::PERMISSION_DENIED);
      const Details details = ReadDetails(other);
      EXPECT_EQ(details.reason, "ERROR_REASON_PERMISSION_DENIED");
      EXPECT_EQ(details.metadata.at("method"), method);
    }
  }
  ExpectNothingInFlight();
}

TEST_F(TokenCallsTest, CallsWithOneTokenAreOnePartyOverAllConnections) {
  options_.token_file = files_.Write("tokens", "ada a\nbob b\neve e\n");
  options_.limits = {.max_request_bytes = 64 << 20,
                     .in_flight_bytes = 64 << 20};
  Start(options_);
  // Each call has its own connection. Any two calls together exceed the budget.
  // The calls have different sizes, so that the test can tell them apart.
  const auto call = [this](const std::string& token, std::int64_t bytes) {
    return std::make_unique<RawCall>(
        Connect(server_->addresses()[0]),
        "/posenc.v1.PositionalEncodingService/ApplyRope",
        std::map<std::string, std::string>{
            {"authorization", "Bearer " + token},
            {"posenc-message-bytes", absl::StrCat(bytes)}});
  };
  const auto waiting = [this](int calls) {
    return Eventually(
        [this, calls] { return server_->Status().calls_waiting == calls; });
  };
  const auto admitted = [this](std::int64_t bytes) {
    return Eventually(
        [this, bytes] { return server_->Status().claimed_bytes == bytes; });
  };
  constexpr std::int64_t kMost = 64 << 20;
  auto first = call("e", kMost);
  ASSERT_TRUE(admitted(kMost));
  auto a = call("a", kMost - 1);
  ASSERT_TRUE(waiting(1));
  const auto other_a = call("a", kMost - 2);
  ASSERT_TRUE(waiting(2));
  const auto b = call("b", kMost - 3);
  ASSERT_TRUE(waiting(3));
  first.reset();
  ASSERT_TRUE(admitted(kMost - 1));
  a.reset();
  ASSERT_TRUE(waiting(1));
  EXPECT_EQ(server_->Status().claimed_bytes, kMost - 3)
      << "b waits for both of a";
}

TEST_F(TokenCallsTest, HealthReflectionAndPublicMethodsNeedNone) {
  options_.public_methods = {"GetServerInfo"};
  Start(options_);
  EXPECT_TRUE(Call("GetServerInfo", {}).ok());
  EXPECT_TRUE(CallAs("GetServerInfo", "wrong").ok());
  EXPECT_FALSE(LetIn(Call("ApplyRope", {})));
  std::string response;
  EXPECT_TRUE(
      RawUnary(channel_, "/grpc.health.v1.Health/Check", "", &response).ok());
  RawCall reflection(
      channel_,
      "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo");
  reflection.WriteLast("\x3A\x01*");
  EXPECT_TRUE(reflection.Read(&response));
}

TEST_F(TokenCallsTest, ABrokenFileLeavesTheLastGoodOneInForce) {
  Start(options_);
  files_.Write("tokens", "ada good\nbob\n");
  EXPECT_EQ(server_->Reload(options_), absl::OkStatus());
  EXPECT_GE(server_->Status().token_reload_errors, 1);
  EXPECT_EQ(server_->Status().tls_reload_errors, 0);
  EXPECT_THAT(notices(), Contains(absl::StrCat(
                             "--token-file: ", options_.token_file,
                             ": line 2: must be NAME TOKEN, then options; what "
                             "was read before stays in force")));
  EXPECT_TRUE(CallAs("GetServerInfo", "other").ok());
}

TEST_F(TokenCallsTest, LimitsAreTakenWhateverTheFilesHold) {
  Start(options_);
  files_.Write("tokens", "nonsense\n");
  options_.limits.in_flight_bytes = std::int64_t{3} << 30;
  EXPECT_EQ(server_->Reload(options_), absl::OkStatus());
  EXPECT_EQ(server_->Status().budget_bytes, std::int64_t{3} << 30);
  EXPECT_TRUE(CallAs("GetServerInfo", "good").ok());
}

TEST_F(TokenCallsTest, TokensThatHaveAllExpiredAreToldOnce) {
  Start(options_);
  files_.Write("tokens", "eve late expires=2020-01-01T00:00:00Z\n");
  EXPECT_EQ(server_->Reload(options_), absl::OkStatus());
  const auto told = [this] {
    const std::vector<std::string> all = notices();
    return std::count(all.begin(), all.end(),
                      "--token-file: all tokens have expired; calls that need "
                      "one are refused");
  };
  server_->EverySecond();
  EXPECT_EQ(told(), 1);
  // The next check of the file reads the change, and does not report it twice.
  EXPECT_TRUE(Eventually([this] {
    server_->EverySecond();
    const std::vector<std::string> all = notices();
    return std::count(all.begin(), all.end(),
                      "certificates and tokens were read again") > 0;
  }));
  EXPECT_EQ(told(), 1);
}

TEST_F(TokenCallsTest, NewTokensAreLoadedAutomaticallyAndOldOnesEnd) {
  Start(options_);
  files_.Write("tokens", "ada good\nada next\n");
  EXPECT_TRUE(Eventually([this] {
    server_->EverySecond();
    return CallAs("GetServerInfo", "next").ok();
  }));
  EXPECT_TRUE(CallAs("GetServerInfo", "good").ok());
  files_.Write("tokens", "ada next\n");
  EXPECT_EQ(server_->Reload(options_), absl::OkStatus());
  EXPECT_FALSE(CallAs("GetServerInfo", "good").ok());
  EXPECT_TRUE(CallAs("GetServerInfo", "next").ok());
}

TEST_F(TokenCallsTest, BadOptionsAreRefusedAtStart) {
  const auto error = [this] {
    return std::string(Server::Start(options_).status().message());
  };
  options_.public_methods = {"Apply"};
  EXPECT_THAT(error(), HasSubstr("--public-methods: there is no RPC 'Apply'"));
  options_.public_methods = {};
  options_.listen = {"0.0.0.0:0"};
  options_.allow_insecure = true;
  EXPECT_THAT(error(), HasSubstr("--token-file: tokens would be sent in the "
                                 "clear to 0.0.0.0:0"));
  options_.listen = {"127.0.0.1:0"};
  options_.token_file = files_.Write("tokens", "\n");
  EXPECT_THAT(error(), HasSubstr("holds no token"));
  options_.token_file = files_.Path("none");
  EXPECT_THAT(error(), HasSubstr("No such file"));
  options_.token_file = "";
  options_.public_methods = {"ApplyRope"};
  EXPECT_THAT(error(), HasSubstr("--public-methods: without --token-file"));
}

}  // namespace
}  // namespace posenc::server
