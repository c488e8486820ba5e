// The client against a scripted service, over a real socket.

#include "posenc/client.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "posenc/rpc/status.pb.h"
#include "tests/fixtures/client.h"

namespace posenc {
namespace {

// Answers with the scripted statuses first, then echoes.
class ScriptedService : public v1::PositionalEncodingService::Service {
 public:
  grpc::Status GetServerInfo(grpc::ServerContext* context,
                             const v1::GetServerInfoRequest*,
                             v1::GetServerInfoResponse* response) override {
    response->set_version(version);
    return Next(context);
  }

  grpc::Status ResolveRope(grpc::ServerContext* context,
                           const v1::ResolveRopeRequest* request,
                           v1::ResolveRopeResponse* response) override {
    response->set_head_dim(request->head_dim());
    return Next(context);
  }

  grpc::Status ApplyRope(grpc::ServerContext* context,
                         const v1::ApplyRopeRequest* request,
                         v1::ApplyRopeResponse* response) override {
    if (hold) release.WaitForNotification();
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      last_request_ = *request;
    }
    if (request->has_q()) *response->mutable_q() = request->q();
    if (request->has_k()) *response->mutable_k() = request->k();
    return Next(context);
  }

  int calls() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return calls_;
  }
  std::map<std::string, int> peers() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return peers_;
  }
  v1::ApplyRopeRequest last_request() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return last_request_;
  }

  // Set before the first call.
  std::vector<grpc::Status> script;
  std::string version = "1";
  bool hold = false;  // ApplyRope waits for `release`
  absl::Notification release;

 private:
  grpc::Status Next(grpc::ServerContext* context) {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++peers_[context->peer()];
    const std::size_t i = calls_++;
    return i < script.size() ? script[i] : grpc::Status::OK;
  }

  mutable std::mutex mutex_;
  int calls_ = 0;
  std::map<std::string, int> peers_;
  v1::ApplyRopeRequest last_request_;
};

using ClientTest = ServiceTest<ScriptedService>;

ApplyRopeArgs ArgsFor(const std::string& q_bytes) {
  ApplyRopeArgs args;
  args.rope = FromPreset("llama-3.1-8b");
  args.positions = StartAt(7);
  args.layout = v1::LAYOUT_BSHD;
  args.q = TensorView{v1::DTYPE_FLOAT32,
                      {1, 1, 1, static_cast<std::int64_t>(q_bytes.size() / 4)},
                      q_bytes};
  return args;
}

TEST(ServiceConfigTest, IsThePublishedFile) {
  std::ifstream file(POSENC_SERVICE_CONFIG_FILE);
  const std::string published{std::istreambuf_iterator<char>(file), {}};

  ASSERT_FALSE(published.empty());
  EXPECT_EQ(kServiceConfig, published);
}

TEST_F(ClientTest, SendsAndReturnsTensorsBitForBit) {
  const Client client = Client::Connect(options_);
  const std::string q = Bytes(4 * 96, 1);
  const std::string k = Bytes(2 * 24, 2);
  ApplyRopeArgs args = ArgsFor(q);
  args.direction = v1::DIRECTION_INVERSE;
  args.query_scale.emplace().set_beta(0.1);
  args.k = TensorView{v1::DTYPE_BFLOAT16, {1, 3, 1, 8}, k};

  const absl::StatusOr<ApplyRopeResult> result = client.ApplyRope(args);

  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(AsString(result->q->bytes), q);
  EXPECT_EQ(result->q->dtype, v1::DTYPE_FLOAT32);
  EXPECT_EQ(result->q->shape, (std::vector<std::int64_t>{1, 1, 1, 96}));
  EXPECT_EQ(AsString(result->k->bytes), k);
  EXPECT_EQ(result->k->dtype, v1::DTYPE_BFLOAT16);
  EXPECT_EQ(result->k->shape, (std::vector<std::int64_t>{1, 3, 1, 8}));
  const v1::ApplyRopeRequest sent = service_.last_request();
  EXPECT_EQ(sent.rope().preset(), "llama-3.1-8b");
  EXPECT_EQ(sent.positions().start(), 7);
  EXPECT_EQ(sent.layout(), v1::LAYOUT_BSHD);
  EXPECT_EQ(sent.direction(), v1::DIRECTION_INVERSE);
  EXPECT_EQ(sent.query_scale().beta(), 0.1);
}

TEST_F(ClientTest, LeavesOutUnsetFields) {
  const Client client = Client::Connect(options_);

  const absl::StatusOr<ApplyRopeResult> result = client.ApplyRope({});

  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_FALSE(result->q.has_value());
  EXPECT_FALSE(result->k.has_value());
  const v1::ApplyRopeRequest sent = service_.last_request();
  EXPECT_FALSE(sent.has_positions());
  EXPECT_FALSE(sent.has_query_scale());
  EXPECT_FALSE(sent.has_q());
  EXPECT_FALSE(sent.has_k());
}

TEST_F(ClientTest, ResultsLieAlignedInMemoryThatMovesWithThem) {
  const Client client = Client::Connect(options_);
  const std::string q = Bytes(4096, 3);

  ApplyRopeArgs args = ArgsFor(q);
  args.k = TensorView{v1::DTYPE_FLOAT32, {1, 1, 1, 7}, {q.data(), 28}};

  absl::StatusOr<ApplyRopeResult> result = client.ApplyRope(args);
  ASSERT_TRUE(result.ok()) << result.status();
  const ApplyRopeResult moved = *std::move(result);
  result = absl::InternalError("gone");

  EXPECT_EQ(AsString(moved.q->bytes), q);
  EXPECT_EQ(AsString(moved.k->bytes), q.substr(0, 28));
  for (const TensorView& view : {*moved.q, *moved.k}) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(view.bytes.data()) % 64, 0u);
  }
}

TEST_F(ClientTest, CopiesShareOneConnection) {
  const auto first = std::make_unique<Client>(Client::Connect(options_));
  ASSERT_TRUE(first->GetServerInfo().ok());
  const Client copy = *first;  // NOLINT: a copy is the subject

  v1::ResolveRopeRequest request;
  request.set_head_dim(64);
  const absl::StatusOr<v1::ResolveRopeResponse> resolved =
      copy.ResolveRope(request);

  ASSERT_TRUE(resolved.ok()) << resolved.status();
  EXPECT_EQ(resolved->head_dim(), 64);
  EXPECT_EQ(service_.calls(), 2);
  EXPECT_EQ(service_.peers().size(), 1u);
}

TEST_F(ClientTest, OneClientServesManyThreads) {
  const Client client = Client::Connect(options_);
  std::vector<std::string> failures(8);
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < failures.size(); ++t) {
    threads.emplace_back([&, t] {
      for (unsigned i = 0; i < 50; ++i) {
        const std::string q = Bytes(4096, 100 * t + i);
        const absl::StatusOr<ApplyRopeResult> out =
            client.ApplyRope(ArgsFor(q));
        if (!out.ok()) {
          failures[t] = out.status().ToString();
        } else if (AsString(out->q->bytes) != q) {
          failures[t] = "somebody else's bytes";
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();

  for (const std::string& failure : failures) EXPECT_EQ(failure, "");
  EXPECT_EQ(service_.calls(), 400);
}

// The client's timeout holds if a call sets none.
TEST_F(ClientTest, ACallPastItsDeadlineIsDeadlineExceeded) {
  service_.hold = true;
  CallOptions call;
  call.timeout = absl::Milliseconds(20);
  const absl::Status of_call =
      Client::Connect(options_).ApplyRope({}, call).status();
  options_.timeout = absl::Milliseconds(20);
  const absl::Status of_client =
      Client::Connect(options_).ApplyRope({}).status();
  service_.release.Notify();

  for (const absl::Status& status : {of_call, of_client}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
    EXPECT_THAT(std::string(status.message()),
                testing::StartsWith(options_.target + ": "));
    EXPECT_THAT(
        std::string(status.message()),
        testing::EndsWith("; the timeout is over: is the server there, or "
                          "must the timeout be longer?"));
  }
}

TEST_F(ClientTest, ZeroAndNegativeTimeoutsHavePassed) {
  const Client client = Client::Connect(options_);
  for (const absl::Duration timeout :
       {absl::ZeroDuration(), absl::Seconds(-5), -absl::InfiniteDuration()}) {
    CallOptions call;
    call.timeout = timeout;
    EXPECT_EQ(client.GetServerInfo(call).status().code(),
              absl::StatusCode::kDeadlineExceeded)
        << timeout;
  }
}

TEST_F(ClientTest, AnInfiniteTimeoutIsNoDeadline) {
  options_.timeout = absl::Milliseconds(-1);
  const Client client = Client::Connect(options_);
  for (const absl::Duration timeout :
       {absl::InfiniteDuration(), absl::Hours(24 * 365 * 1000)}) {
    CallOptions call;
    call.timeout = timeout;
    EXPECT_TRUE(client.GetServerInfo(call).ok()) << timeout;
  }
}

// 1 MiB exceeds 256 KiB, gRPC's default limit for retries.
TEST_F(ClientTest, RetriesUnavailableEvenWithATensor) {
  service_.script.assign(2, grpc::Status(grpc::StatusCode::UNAVAILABLE, "x"));
  const Client client = Client::Connect(options_);
  const std::string q = Bytes(1 << 20, 4);

  const absl::StatusOr<ApplyRopeResult> result = client.ApplyRope(ArgsFor(q));

  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(AsString(result->q->bytes), q);
  EXPECT_EQ(service_.calls(), 3);
}

TEST_F(ClientTest, GivesUpAfterFourAttempts) {
  service_.script.assign(9,
                         grpc::Status(grpc::StatusCode::UNAVAILABLE, "busy"));
  const Client client = Client::Connect(options_);

  const absl::Status status = client.GetServerInfo().status();

  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(status.message(),
            options_.target +
                ": busy; is the server there, does it speak TLS or plaintext "
                "as this client does, and do both trust the certificates?");
  EXPECT_EQ(service_.calls(), 4);
}

TEST_F(ClientTest, AServiceConfigOfTheCallersReplacesOurs) {
  service_.script.assign(9, grpc::Status(grpc::StatusCode::UNAVAILABLE, "x"));
  options_.service_config = "{}";
  const Client client = Client::Connect(options_);

  EXPECT_EQ(client.GetServerInfo().status().code(),
            absl::StatusCode::kUnavailable);
  EXPECT_EQ(service_.calls(), 1);
}

TEST_F(ClientTest, OtherErrorsAreNotRetriedAndKeepCodeAndMessage) {
  const Client client = Client::Connect(options_);
  for (int code = 1; code <= 16; ++code) {
    // identity_test covers the text that is added to these codes' errors.
    if (code == grpc::StatusCode::UNKNOWN ||
        code == grpc::StatusCode::UNAVAILABLE ||
        code == grpc::StatusCode::UNIMPLEMENTED ||
        code == grpc::StatusCode::DEADLINE_EXCEEDED) {
      continue;
    }
    const std::string message = absl::StrCat("q: number ", code);
    service_.script.resize(service_.calls(), grpc::Status::OK);
    service_.script.emplace_back(static_cast<grpc::StatusCode>(code), message);
    const int before = service_.calls();

    const absl::Status status = client.GetServerInfo().status();

    EXPECT_EQ(status.raw_code(), code);
    EXPECT_EQ(status.message(), message);
    EXPECT_EQ(service_.calls(), before + 1) << code;
  }
}

TEST_F(ClientTest, ATargetThatGrpcCannotReadIsNamed) {
  options_.target = "ipv4:x";
  const Client client = Client::Connect(options_);

  EXPECT_THAT(std::string(client.GetServerInfo().status().message()),
              testing::StartsWith("ipv4:x: "));
}

rpc::Status DetailsWith(const std::string& domain) {
  rpc::BadRequest bad_request;
  bad_request.add_field_violations()->set_field("q.shape");
  rpc::ErrorInfo info;
  info.set_domain(domain);
  info.set_reason("ERROR_REASON_SHAPE_MISMATCH");
  rpc::Status status;
  google::protobuf::Any* detail = status.add_details();
  detail->set_type_url("type.googleapis.com/google.rpc.BadRequest");
  detail->set_value(bad_request.SerializeAsString());
  detail = status.add_details();
  detail->set_type_url("type.googleapis.com/google.rpc.ErrorInfo");
  detail->set_value(info.SerializeAsString());
  return status;
}

TEST_F(ClientTest, ErrorsKeepTheServersReasonAndDetails) {
  const std::string details = DetailsWith("posenc").SerializeAsString();
  service_.script = {
      {grpc::StatusCode::INVALID_ARGUMENT, "q.shape: bad", details}};
  const Client client = Client::Connect(options_);

  const absl::Status status = client.ApplyRope({}).status();

  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "q.shape: bad");
  EXPECT_EQ(ErrorReason(status), "ERROR_REASON_SHAPE_MISMATCH");
  EXPECT_EQ(status.GetPayload("type.googleapis.com/google.rpc.Status"),
            absl::Cord(details));
}

TEST_F(ClientTest, ReasonIsEmptyWherePosencGaveNone) {
  service_.script = {
      {grpc::StatusCode::INTERNAL, "plain"},
      {grpc::StatusCode::INTERNAL, "garbage", "\xff\xff\xff"},
      {grpc::StatusCode::INTERNAL, "proxy's",
       DetailsWith("proxy.example").SerializeAsString()},
  };
  const Client client = Client::Connect(options_);

  for (const grpc::Status& scripted : service_.script) {
    const absl::Status status = client.GetServerInfo().status();
    EXPECT_EQ(status.message(), scripted.error_message());
    EXPECT_EQ(ErrorReason(status), "");
  }
  EXPECT_EQ(ErrorReason(absl::OkStatus()), "");
}

TEST_F(ClientTest, Passes64MiBEachWay) {
  const Client client = Client::Connect(options_);
  const std::string q = Bytes(64 << 20, 5);

  const absl::StatusOr<ApplyRopeResult> result = client.ApplyRope(ArgsFor(q));

  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(AsString(result->q->bytes) == q);
}

TEST_F(ClientTest, ARequestOverTheLimitIsResourceExhaustedAndNotSent) {
  options_.max_message_bytes = 1 << 20;
  const Client client = Client::Connect(options_);
  const std::string x = Bytes(1 << 20, 6);
  AddEncodingArgs args;
  args.x = TensorView{v1::DTYPE_FLOAT32, {1, 1 << 18}, x};

  const absl::Status status = client.AddEncoding(args).status();

  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(service_.calls(), 0);
}

// The service config allows 2 GiB - 1, for clients without their own limit.
TEST_F(ClientTest, TheLimitOfTheClientHoldsAndCanBeRaised) {
  service_.version = std::string(6 << 20, 'v');
  options_.max_message_bytes = 5 << 20;
  EXPECT_EQ(Client::Connect(options_).GetServerInfo().status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(service_.calls(), 1);
  options_.max_message_bytes = 7 << 20;
  const auto info = Client::Connect(options_).GetServerInfo();
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->version(), service_.version);
}

TEST_F(ClientTest, WorksOverTheCallersChannel) {
  const Client client(server_->InProcessChannel(grpc::ChannelArguments()));

  EXPECT_TRUE(client.GetServerInfo().ok());
  EXPECT_EQ(service_.calls(), 1);
}

}  // namespace
}  // namespace posenc
