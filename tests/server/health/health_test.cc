// Answers to probes and watchers, and to missing or invalid requests.
// Reflection reads requests in the same way.

#include "server/health/health.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "tests/fixtures/http2.h"
#include "tests/fixtures/server.h"

namespace posenc::server {
namespace {

using testing::HasSubstr;

constexpr char kCheck[] = "/grpc.health.v1.Health/Check";
constexpr char kWatch[] = "/grpc.health.v1.Health/Watch";
constexpr const char* kSmall[] = {
    kCheck, kWatch, "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"};

// grpc.health.v1.HealthCheckResponse.
const std::string kServing = "\x08\x01";
const std::string kNotServing = "\x08\x02";
const std::string kServiceUnknown = "\x08\x03";

// grpc.health.v1.HealthCheckRequest.
std::string Request(const std::string& service) {
  return absl::StrCat("\x0A", std::string(1, static_cast<char>(service.size())),
                      service);
}

class HealthTest : public ServerTest {
 protected:
  // Starts another watch. Returns whether a message came, and stores it in
  // health_.
  bool Watch(const std::string& service = "",
             const std::shared_ptr<grpc::Channel>& channel = nullptr) {
    watches_.push_back(std::make_unique<RawCall>(
        channel == nullptr ? channel_ : channel, kWatch));
    watches_.back()->WriteLast(Request(service));
    return watches_.back()->Read(&health_);
  }

  std::vector<std::unique_ptr<RawCall>> watches_;
  std::string health_;
};

TEST_F(HealthTest, OnlyItsOwnMethodsAreKnown) {
  Health health(10, 10);
  std::vector<std::string> names;
  for (const Method& method : health.Methods()) {
    names.emplace_back(method.name);
  }
  EXPECT_THAT(names, testing::ElementsAre("Check", "Watch"));
}

// A watch whose caller has gone frees a slot.
TEST_F(HealthTest, WatchesOfAConnectionAreLimited) {
  Start({.connections = {.max_concurrent_streams = 20}});
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(Watch()) << i;
  EXPECT_FALSE(Watch());
  const grpc::Status refused = watches_.back()->Finish();
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(refused.error_message(), HasSubstr("10 watches"));
  EXPECT_TRUE(Watch("", Connect(server_->addresses()[0])));
  EXPECT_TRUE(RawUnary(channel_, kCheck, Request(""), &health_).ok());
  watches_.erase(watches_.begin());
  EXPECT_TRUE(test::Eventually([this] { return Watch(); }));
}

TEST_F(HealthTest, WatchesOfAServerAreLimited) {
  ServerOptions options;
  options.connections.max_connections = 3;
  Start(options);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(Watch()) << i;
  EXPECT_FALSE(Watch());
  EXPECT_EQ(watches_.back()->Finish().error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
  options.connections.max_connections = 4;
  ASSERT_TRUE(server_->Reload(options).ok());
  EXPECT_TRUE(Watch());
}

TEST_F(HealthTest, AWatchOfAnUnknownNameSaysSoAndStays) {
  ASSERT_TRUE(Watch("other"));
  EXPECT_EQ(health_, kServiceUnknown);
}

TEST_F(HealthTest, EveryWatchLearnsOfADrain) {
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(Watch("posenc.readiness"));
    EXPECT_EQ(health_, kServing);
  }
  watches_.pop_back();  // a watch that has ended gets no messages
  server_->Drain();
  for (const auto& watch : watches_) {
    ASSERT_TRUE(watch->Read(&health_));
    EXPECT_EQ(health_, kNotServing);
  }
}

TEST_F(HealthTest, MalformedRequestsAreRefused) {
  for (const char* const path : kSmall) {
    std::string response;
    EXPECT_EQ(RawUnary(channel_, path, "\xFF", &response).error_code(),
              grpc::StatusCode::INVALID_ARGUMENT)
        << path;
    EXPECT_EQ(
        RawUnary(channel_, path, Request(std::string(5000, 'a')), &response)
            .error_code(),
        grpc::StatusCode::RESOURCE_EXHAUSTED)
        << path;
  }
}

TEST_F(HealthTest, ARequestThatDoesNotComeIsEndedByTheServersOwnDeadline) {
  Start({.limits = {.default_deadline = absl::Milliseconds(50)}});
  for (const char* const path : kSmall) {
    RawCall none(channel_, path);  // its client waits for a minute
    const grpc::Status status = none.Finish();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED) << path;
    EXPECT_THAT(status.error_message(), HasSubstr("the server's own deadline"));
    http2::Socket half = http2::HalfAMessage(server_->addresses()[0], path);
    EXPECT_TRUE(half.AwaitFrame(1)) << path;  // a status
  }
}

TEST_F(HealthTest, AWatchOutlivesTheServersDeadline) {
  std::string health;
  // On a busy machine a message may take longer than the deadline.
  EXPECT_TRUE(test::Eventually([&] {
    Start({.limits = {.default_deadline = absl::Milliseconds(20)}});
    RawCall watch(channel_, kWatch);
    watch.WriteLast(Request(""));
    if (!watch.Read(&health)) return false;
    EXPECT_EQ(health, kServing);
    // Waits until this call ends by its deadline, so that the watch's deadline
    // is over, too.
    RawCall none(channel_, kCheck);
    EXPECT_EQ(none.Finish().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
    server_->Drain();
    return watch.Read(&health);
  }));
  EXPECT_EQ(health, kNotServing);
}

}  // namespace
}  // namespace posenc::server
