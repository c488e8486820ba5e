// Identity of a call on both sides, which errors repeat: request id,
// traceparent, target, versions.

#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "posenc/client.h"
#include "tests/fixtures/client.h"
#include "tests/fixtures/eventually.h"

namespace posenc {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::Not;
using testing::StartsWith;

// Records the metadata of each call. Ends all calls except GetServerInfo with
// `end`.
class NotingService : public v1::PositionalEncodingService::Service {
 public:
  grpc::Status GetServerInfo(grpc::ServerContext* context,
                             const v1::GetServerInfoRequest*,
                             v1::GetServerInfoResponse* response) override {
    info_timeout.Set(absl::FromChrono(context->deadline()) - absl::Now());
    response->set_version("0.0.9");
    return grpc::Status::OK;
  }
  grpc::Status ResolveRope(grpc::ServerContext* context,
                           const v1::ResolveRopeRequest*,
                           v1::ResolveRopeResponse*) override {
    return Note(context);
  }
  grpc::Status ApplyRope(grpc::ServerContext* context,
                         const v1::ApplyRopeRequest*,
                         v1::ApplyRopeResponse*) override {
    return Note(context);
  }
  grpc::Status ApplyRopeStream(
      grpc::ServerContext* context,
      grpc::ServerReaderWriter<v1::ApplyRopeStreamResponse,
                               v1::ApplyRopeStreamRequest>* stream) override {
    v1::ApplyRopeStreamRequest request;
    while (stream->Read(&request)) {
    }
    stream_timeout.Set(absl::FromChrono(context->deadline()) - absl::Now());
    return Note(context);
  }
  grpc::Status BuildBias(grpc::ServerContext* context,
                         const v1::BuildBiasRequest*,
                         grpc::ServerWriter<v1::BuildBiasResponse>*) override {
    return Note(context);
  }

  std::vector<std::string> Noted(const std::string& key) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return noted_[key];
  }

  // The timeouts of the last GetServerInfo and the last ApplyRopeStream.
  Guarded<absl::Duration> info_timeout, stream_timeout;

  // Set before the first call.
  grpc::Status end;
  absl::Duration late;  // passes before `end`

 private:
  grpc::Status Note(grpc::ServerContext* context) {
    absl::SleepFor(late);
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const char* const key : {"x-request-id", "traceparent"}) {
      const auto [first, last] = context->client_metadata().equal_range(key);
      std::string values;
      for (auto it = first; it != last; ++it) {
        values.append(it->second.data(), it->second.size());
      }
      noted_[key].push_back(values);
    }
    return end;
  }

  std::mutex mutex_;
  std::map<std::string, std::vector<std::string>> noted_;
};

class IdentityTest : public ServiceTest<NotingService> {
 protected:
  // Makes a small call, a bulk call and a stream. All fail.
  static std::vector<absl::Status> CallAll(const Client& client,
                                           const CallOptions& options) {
    ApplyRopeArgs apply;
    apply.q = TensorView{v1::DTYPE_FLOAT32, {1, 1, 1, 2}, "12345678"};
    return {client.ResolveRope({}, options).status(),
            client.ApplyRope(apply, options).status(),
            client.BuildBias({}, options).status()};
  }
};

constexpr char kTrace[] =
    "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

TEST_F(IdentityTest, EveryKindOfCallSendsItsIdentityAndErrorsHaveTheId) {
  service_.end =
      Error(grpc::StatusCode::INVALID_ARGUMENT, "ERROR_REASON_X", "");
  CallOptions options;
  options.request_id = "r-17";
  options.traceparent = kTrace;
  for (const absl::Status& status :
       CallAll(Client::Connect(options_), options)) {
    EXPECT_EQ(ErrorFact(status, "requestId"), "r-17") << status;
    EXPECT_EQ(ErrorReason(status), "ERROR_REASON_X");
    EXPECT_EQ(status.message(), "scripted");
  }
  EXPECT_THAT(service_.Noted("x-request-id"),
              testing::ElementsAre("r-17", "r-17", "r-17"));
  EXPECT_THAT(service_.Noted("traceparent"),
              testing::ElementsAre(kTrace, kTrace, kTrace));
}

TEST_F(IdentityTest, TheClientsIdentityIsTheDefaultOfItsCalls) {
  options_.request_id = "job";
  options_.traceparent = kTrace;
  service_.end = {grpc::StatusCode::INTERNAL, "scripted"};
  const Client client = Client::Connect(options_);
  CallOptions own;
  own.request_id = "mine";
  CallAll(client, {});
  CallAll(client, own);
  EXPECT_THAT(
      service_.Noted("x-request-id"),
      testing::ElementsAre("job", "job", "job", "mine", "mine", "mine"));
  EXPECT_THAT(service_.Noted("traceparent"), testing::Each(kTrace));
}

TEST_F(IdentityTest, CallsWithoutAnIdGetRandomIdsThatErrorsHave) {
  service_.end = {grpc::StatusCode::INTERNAL, "scripted"};
  const Client client = Client::Connect(options_);
  std::set<std::string> told;
  for (int i = 0; i < 3; ++i) {
    for (const absl::Status& status : CallAll(client, {})) {
      told.insert(ErrorFact(status, "requestId"));
    }
  }
  EXPECT_EQ(told.size(), 9u);
  EXPECT_THAT(told, testing::Each(MatchesRegex("[0-9a-f]{32}")));
  const std::vector<std::string> noted = service_.Noted("x-request-id");
  EXPECT_EQ(std::set<std::string>(noted.begin(), noted.end()), told);
  EXPECT_THAT(service_.Noted("traceparent"), testing::Each(""));
}

TEST_F(IdentityTest, TextThatNoHeaderCanCarryIsRefused) {
  const Client client = Client::Connect(options_);
  for (const std::string& bad :
       {std::string("a\nb"), std::string("\xC3\xA9"), std::string(129, 'x')}) {
    CallOptions options;
    options.request_id = bad;
    for (const absl::Status& status : CallAll(client, options)) {
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(std::string(status.message()), StartsWith("request_id: "));
    }
    options.request_id = "";
    options.traceparent = bad;
    EXPECT_THAT(std::string(client.ResolveRope({}, options).status().message()),
                StartsWith("traceparent: "));
  }
  EXPECT_THAT(service_.Noted("x-request-id"), testing::IsEmpty());
}

TEST_F(IdentityTest, ErrorsOfUnknownMethodsHaveBothVersions) {
  service_.end =
      Error(grpc::StatusCode::UNIMPLEMENTED, "ERROR_REASON_FIELD_UNKNOWN", "");
  for (const absl::Status& status : CallAll(Client::Connect(options_), {})) {
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
    EXPECT_THAT(std::string(status.message()),
                StartsWith("scripted; the server is posencd 0.0.9, this client "
                           "is "));
    EXPECT_EQ(ErrorReason(status), "ERROR_REASON_FIELD_UNKNOWN");
  }
}

TEST_F(IdentityTest, TheServersVersionIsNotAwaitedBeyondTheCallsOwnDeadline) {
  service_.end = {grpc::StatusCode::UNIMPLEMENTED, "scripted"};
  CallOptions options;
  options.timeout = absl::Seconds(1);
  const Client client = Client::Connect(options_);
  // On a busy machine the version may come too late.
  EXPECT_TRUE(test::Eventually([&] {
    bool told = true;
    for (const absl::Status& status : CallAll(client, options)) {
      told = told && status.message().find("0.0.9") != std::string::npos;
      // gRPC rounds the sent timeout up, by less than a tenth.
      EXPECT_LE(service_.info_timeout.Get(), absl::Milliseconds(1100));
    }
    return told;
  }));
}

TEST_F(IdentityTest, ATimeoutIsThatOfAllRequestsOfACall) {
  // Too large for one message: the second request is a stream.
  service_.end = {grpc::StatusCode::RESOURCE_EXHAUSTED, "scripted"};
  service_.late = absl::Seconds(1);
  CallOptions options;
  options.timeout = absl::Seconds(8);
  ApplyRopeArgs apply;
  const std::vector<float> q(2);
  apply.q = ViewOf(q, {1, 1, 1, 2});

  const absl::Status status =
      Client::Connect(options_).ApplyRope(apply, options).status();

  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_GT(service_.stream_timeout.Get(), absl::ZeroDuration());
  EXPECT_LE(service_.stream_timeout.Get(), absl::Milliseconds(7500));
}

TEST_F(IdentityTest, ErrorsThatAStreamEndsWithOnThisSideTellTheIdToo) {
  CallOptions options;
  options.request_id = "r-18";
  const Client client = Client::Connect(options_);
  const absl::Status status = client.ApplyRopeStream(
      ApplyRopeArgs(),
      []() -> absl::StatusOr<absl::Span<const char>> {
        return absl::AbortedError("no more");
      },
      [](absl::Span<const char>) { return absl::OkStatus(); }, options);
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_EQ(status.message(), "no more");
  EXPECT_EQ(ErrorFact(status, "requestId"), "r-18");
}

TEST(AwayTest, ErrorsOfAServerThatIsAwayNameTheTarget) {
  ClientOptions options;
  // No server listens at this socket.
  options.target = "unix:" + testing::TempDir() + "/posenc-nobody.sock";
  options.timeout = absl::Seconds(20);
  ApplyRopeArgs apply;
  apply.q = TensorView{v1::DTYPE_FLOAT32, {1, 1, 1, 2}, "12345678"};
  const Client client = Client::Connect(options);
  for (const absl::Status& status :
       {client.GetServerInfo().status(), client.ApplyRope(apply).status(),
        client.BuildBias({}).status()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(std::string(status.message()),
                StartsWith(options.target + ": "));
    EXPECT_THAT(ErrorFact(status, "requestId"), Not(testing::IsEmpty()));
  }
}

TEST(AwayTest, ATargetWithoutAPortIsTold) {
  ClientOptions options;
  options.target = "127.0.0.1";
  options.timeout = absl::Seconds(20);
  const absl::Status status = Client::Connect(options).GetServerInfo().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()),
              EndsWith("; the target has no port, and gRPC takes 443: write "
                       "HOST:PORT, such as localhost:50051"));
}

}  // namespace
}  // namespace posenc
