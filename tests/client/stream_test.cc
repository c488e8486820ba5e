// The client's streams of tensors against a scripted service, over a real
// socket.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "posenc/client.h"
#include "tests/fixtures/client.h"

namespace posenc {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::Le;

// Inverts every byte, so that results differ from inputs.
std::string Turned(std::string bytes) {
  for (char& byte : bytes) byte = static_cast<char>(~byte);
  return bytes;
}

class StreamService : public v1::PositionalEncodingService::Service {
 public:
  grpc::Status GetServerInfo(grpc::ServerContext*,
                             const v1::GetServerInfoRequest*,
                             v1::GetServerInfoResponse*) override {
    ++questions;
    return grpc::Status::OK;
  }
  grpc::Status ResolveRope(grpc::ServerContext*, const v1::ResolveRopeRequest*,
                           v1::ResolveRopeResponse*) override {
    ++questions;
    return grpc::Status::OK;
  }

  grpc::Status ApplyRope(grpc::ServerContext*,
                         const v1::ApplyRopeRequest* request,
                         v1::ApplyRopeResponse* response) override {
    if (request->has_k()) *response->mutable_k() = request->k();
    return ++unary > unary_failures ? grpc::Status::OK : unary_status;
  }

  grpc::Status Reposition(grpc::ServerContext*, const v1::RepositionRequest*,
                          v1::RepositionResponse*) override {
    return ++unary > unary_failures ? grpc::Status::OK : unary_status;
  }

  grpc::Status ApplyRopeStream(
      grpc::ServerContext* context,
      grpc::ServerReaderWriter<v1::ApplyRopeStreamResponse,
                               v1::ApplyRopeStreamRequest>* stream) override {
    return Serve(context, stream, &applied);
  }

  grpc::Status RepositionStream(
      grpc::ServerContext* context,
      grpc::ServerReaderWriter<v1::RepositionStreamResponse,
                               v1::RepositionStreamRequest>* stream) override {
    return Serve(context, stream, &moved);
  }

  // Set before the calls.
  grpc::Status unary_status = Error(grpc::StatusCode::RESOURCE_EXHAUSTED,
                                    "ERROR_REASON_MESSAGE_TOO_LARGE", "");
  int unary_failures = 1000;     // calls that end with unary_status
  std::size_t ids_bytes = 0;     // bytes of ids before the tensors
  std::size_t answer_bytes = 0;  // bytes of a response; 0: all received bytes
  int fail_at = -1;  // ends a stream with `end` in place of this message
  grpc::Status end;
  std::string extra;  // bytes beyond the tensors
  bool hold = false;  // streams wait for `release`
  absl::Notification release;

  // Read after the calls. The messages have no `data`; it is in `bytes`.
  int unary = 0, questions = 0;
  std::vector<v1::ApplyRopeStreamRequest> applied;
  std::vector<v1::RepositionStreamRequest> moved;
  std::vector<std::size_t> sizes;  // bytes of each message
  std::string bytes;
  std::string announced;

 private:
  template <typename Request, typename Response>
  grpc::Status Serve(grpc::ServerContext* context,
                     grpc::ServerReaderWriter<Response, Request>* stream,
                     std::vector<Request>* seen) {
    const std::lock_guard<std::mutex> alone(serving_);
    announced = MetadataOf(*context, "posenc-message-bytes");
    seen->clear();
    bytes.clear();
    std::size_t answered = ids_bytes;
    Request request;
    while (stream->Read(&request)) {
      if (static_cast<int>(seen->size()) == fail_at) return end;
      if (hold) release.WaitForNotification();
      sizes.push_back(request.ByteSizeLong());
      bytes += request.data();
      request.clear_data();
      seen->push_back(request);
      while (answered < bytes.size()) {
        const std::size_t n =
            answer_bytes == 0 ? bytes.size() - answered : answer_bytes;
        Response response;
        response.set_data(Turned(bytes.substr(answered, n)));
        answered += response.data().size();
        stream->Write(response);
      }
    }
    Response response;
    response.set_data(extra);
    if (!extra.empty()) stream->Write(response);
    return grpc::Status::OK;
  }

  // The handler of a cancelled call may still run when the next call begins.
  std::mutex serving_;
};

class StreamTest : public ServiceTest<StreamService> {
 protected:
  // `count` times 8 bytes.
  static NextBytes Counted(int count) {
    auto sent = std::make_shared<int>(0);
    auto bytes = std::make_shared<std::string>();
    return [count, sent, bytes]() -> absl::StatusOr<absl::Span<const char>> {
      if (*sent == count) return absl::Span<const char>();
      bytes->assign(8, static_cast<char>((*sent)++));
      return absl::MakeConstSpan(bytes->data(), bytes->size());
    };
  }
  static absl::Status Ignore(absl::Span<const char> /*bytes*/) {
    return absl::OkStatus();
  }
};

// q: 6 tokens of 4 heads of 2 floats; k: of one head.
struct Sample {
  std::string q_bytes = Bytes(2 * 3 * 4 * 8), k_bytes = Bytes(2 * 3 * 8);
  ApplyRopeArgs args;
  Sample() {
    args.rope = FromPreset("llama-3.1-8b");
    args.positions = StartAt(100);
    args.layout = v1::LAYOUT_BSHD;
    args.direction = v1::DIRECTION_ADJOINT;
    args.query_scale.emplace().set_beta(0.5);
    args.q = TensorView{v1::DTYPE_FLOAT32, {2, 3, 4, 2}, q_bytes};
    args.k = TensorView{v1::DTYPE_FLOAT32, {2, 3, 1, 2}, k_bytes};
  }
};

TEST_F(StreamTest, TensorsComeBackWholeHoweverTheAnswersAreCut) {
  const Client client = Client::Connect(options_);
  const Sample sample;
  for (const std::size_t answer : {0, 1, 7, 100, 1000}) {
    service_.answer_bytes = answer;
    const absl::StatusOr<ApplyRopeResult> result =
        client.ApplyRopeStream(sample.args);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(AsString(result->q->bytes), Turned(sample.q_bytes));
    EXPECT_EQ(result->q->shape, sample.args.q->shape);
    EXPECT_EQ(AsString(result->k->bytes), Turned(sample.k_bytes));
    EXPECT_EQ(result->k->shape, sample.args.k->shape);
  }
}

TEST_F(StreamTest, TheFirstMessageDescribesTheCallAndNothingIsAskedBefore) {
  const Client client = Client::Connect(options_);
  const Sample sample;
  ASSERT_TRUE(client.ApplyRopeStream(sample.args).ok());

  const v1::ApplyRopeRequest& call = service_.applied[0].call();
  EXPECT_EQ(call.rope().preset(), "llama-3.1-8b");
  EXPECT_EQ(call.layout(), v1::LAYOUT_BSHD);
  EXPECT_EQ(call.direction(), v1::DIRECTION_ADJOINT);
  EXPECT_EQ(call.query_scale().beta(), 0.5);
  EXPECT_EQ(call.positions().start(), 100);
  EXPECT_THAT(call.q().shape(), ElementsAre(2, 3, 4, 2));
  EXPECT_EQ(call.q().data() + call.k().data(), "");
  for (std::size_t i = 1; i < service_.applied.size(); ++i) {
    EXPECT_FALSE(service_.applied[i].has_call());
  }
  EXPECT_EQ(service_.bytes, sample.q_bytes + sample.k_bytes);
  EXPECT_EQ(service_.questions, 0);
}

TEST_F(StreamTest, NoMessageIsLargerThanWasAnnounced) {
  const Client client = Client::Connect(options_);
  const std::string q = Bytes(10 << 20);
  ApplyRopeArgs args;
  args.q = TensorView{v1::DTYPE_FLOAT32, {10 << 10, 1, 256}, q};

  ASSERT_TRUE(client.ApplyRopeStream(args).ok());

  EXPECT_TRUE(service_.bytes == q);
  const std::size_t announced = std::stoul(service_.announced);
  EXPECT_THAT(service_.sizes, Each(Le(announced)));
  EXPECT_LT(announced, 4u << 20);
}

TEST_F(StreamTest, LargeIdsAreSentAsBytesBeforeTheTensors) {
  const Client client = Client::Connect(options_);
  const std::string k = Bytes(20000 * 8);
  const std::vector<std::int64_t> ids(20000, 7);
  const std::string ids_bytes(reinterpret_cast<const char*>(ids.data()),
                              ids.size() * 8);
  RepositionArgs args;
  args.layout = v1::LAYOUT_THD;
  *args.movement.mutable_old_positions()->mutable_ids() =
      ToTensor(ViewOf(ids, {20000}));
  args.movement.set_shift(1);
  args.k = TensorView{v1::DTYPE_FLOAT32, {20000, 1, 2}, k};
  service_.ids_bytes = ids_bytes.size();

  const absl::StatusOr<TensorResult> result = client.RepositionStream(args);

  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(AsString(result->tensor.bytes) == Turned(k));
  EXPECT_TRUE(service_.bytes == ids_bytes + k);
  const auto& sent = service_.moved[0].call().movement().old_positions().ids();
  EXPECT_EQ(sent.data(), "");
  EXPECT_THAT(sent.shape(), ElementsAre(20000));
}

TEST_F(StreamTest, ResultsReplaceTheInputWhereTheCallerWantsThat) {
  const Client client = Client::Connect(options_);
  Sample sample;
  const std::string q = sample.q_bytes, k = sample.k_bytes;
  sample.args.q_out = absl::MakeSpan(sample.q_bytes);

  const absl::StatusOr<ApplyRopeResult> result =
      client.ApplyRopeStream(sample.args);

  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->q->bytes.data(), sample.q_bytes.data());
  EXPECT_EQ(sample.q_bytes, Turned(q));
  EXPECT_EQ(AsString(result->k->bytes), Turned(k));
  EXPECT_EQ(sample.k_bytes, k);
}

TEST_F(StreamTest, TensorsAboveTheThresholdAreStreamed) {
  options_.stream_above_bytes = 150;
  const Client client = Client::Connect(options_);
  Sample sample;
  const absl::StatusOr<ApplyRopeResult> result = client.ApplyRope(sample.args);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(AsString(result->q->bytes), Turned(sample.q_bytes));
  EXPECT_EQ(service_.unary, 0);

  sample.args.q.reset();
  service_.unary_status = grpc::Status::OK;
  EXPECT_TRUE(client.ApplyRope(sample.args).ok());
  EXPECT_EQ(service_.unary, 1);
}

TEST_F(StreamTest, TensorsAboveTheMessageLimitAreStreamedWithinIt) {
  options_.max_message_bytes = 1 << 20;
  const Client client = Client::Connect(options_);
  const std::string k = Bytes(3 << 20);
  RepositionArgs args;
  args.movement.set_shift(5);
  args.layout = v1::LAYOUT_THD;
  args.k = TensorView{v1::DTYPE_FLOAT32, {3 << 12, 1, 64}, k};
  service_.answer_bytes = 1 << 19;

  const absl::StatusOr<TensorResult> result = client.Reposition(args);

  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(AsString(result->tensor.bytes) == Turned(k));
  EXPECT_THAT(service_.sizes, Each(Le(1u << 20)));
}

TEST_F(StreamTest, TensorsAboveTheServersLimitAreStreamed) {
  const Client client = Client::Connect(options_);
  const Sample sample;

  const absl::StatusOr<ApplyRopeResult> result = client.ApplyRope(sample.args);

  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(AsString(result->q->bytes), Turned(sample.q_bytes));
  EXPECT_EQ(service_.unary, 1);
}

// Only the bytes of tensors can be streamed. The service would accept the sixth
// call, so that a client that retries forever ends.
TEST_F(StreamTest, ALargeRequestWithoutTensorBytesIsRefusedOnce) {
  service_.unary_failures = 5;
  const Client client = Client::Connect(options_);
  const std::string config(1000, ' ');
  ApplyRopeArgs apply;
  apply.rope = FromConfigJson(config);
  apply.q = TensorView{v1::DTYPE_FLOAT32, {1, 0, 4, 2}, {}};
  RepositionArgs move;
  move.old_rope = FromConfigJson(config);
  move.k = apply.q;

  const absl::Status statuses[] = {
      client.ApplyRope(apply).status(), client.ApplyRopeStream(apply).status(),
      client.Reposition(move).status(), client.RepositionStream(move).status()};

  EXPECT_EQ(service_.unary, 4);
  for (const absl::Status& status : statuses) {
    EXPECT_EQ(ErrorReason(status), "ERROR_REASON_MESSAGE_TOO_LARGE") << status;
  }
}

TEST_F(StreamTest, AnOverloadedServerIsNotAskedAgainThroughAStream) {
  service_.unary_status = Error(grpc::StatusCode::RESOURCE_EXHAUSTED,
                                "ERROR_REASON_OVERLOADED", "");
  const Client client = Client::Connect(options_);

  const absl::Status status = client.ApplyRope(Sample().args).status();

  EXPECT_EQ(ErrorReason(status), "ERROR_REASON_OVERLOADED");
  EXPECT_TRUE(service_.applied.empty());
}

TEST_F(StreamTest, ReportsItsProgress) {
  const Client client = Client::Connect(options_);
  const Sample sample;
  service_.answer_bytes = 64;
  std::vector<std::int64_t> done;
  CallOptions call;
  call.on_progress = [&](std::int64_t bytes, std::int64_t of) {
    EXPECT_EQ(of, 240);
    done.push_back(bytes);
  };

  ASSERT_TRUE(client.ApplyRopeStream(sample.args, call).ok());

  EXPECT_EQ(done.back(), 240);
  EXPECT_TRUE(std::is_sorted(done.begin(), done.end()));
  EXPECT_GE(done.size(), 4u);
}

TEST_F(StreamTest, BytesOfCallbacksComeAndGoInOrder) {
  const Client client = Client::Connect(options_);
  std::string sent, received;
  for (int i = 0; i < 100; ++i) sent += std::string(8, static_cast<char>(i));

  const absl::Status status = client.ApplyRopeStream(
      ApplyRopeArgs(), Counted(100), [&](absl::Span<const char> bytes) {
        received += AsString(bytes);
        return absl::OkStatus();
      });

  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(received, Turned(sent));
}

TEST_F(StreamTest, TheServersErrorTellsTheMessage) {
  service_.fail_at = 3;
  service_.end = Error(grpc::StatusCode::INVALID_ARGUMENT,
                       "ERROR_REASON_FIELD_INVALID", "3");
  const Client client = Client::Connect(options_);
  std::size_t received = 0;

  const absl::Status status = client.ApplyRopeStream(
      ApplyRopeArgs(), Counted(100), [&](absl::Span<const char> bytes) {
        received += bytes.size();
        return absl::OkStatus();
      });

  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ErrorReason(status), "ERROR_REASON_FIELD_INVALID");
  EXPECT_EQ(ErrorFact(status, "messageIndex"), "3");
  EXPECT_EQ(ErrorFact(status, "field"), "");
  EXPECT_EQ(received, 16u);  // both messages after the description
}

TEST_F(StreamTest, AnEndBeforeAllBytesAndBytesBeyondAreInternal) {
  const Client client = Client::Connect(options_);
  service_.fail_at = 1;
  absl::Status status = client.ApplyRopeStream(Sample().args).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(status.message(), "the stream ended after 0 of 240 bytes");

  service_.fail_at = -1;
  service_.extra = "x";
  status = client.ApplyRopeStream(Sample().args).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(status.message(), "more bytes came than were sent");
}

TEST_F(StreamTest, ErrorsOfTheCallersEndTheCall) {
  const Client client = Client::Connect(options_);
  const NextBytes next = Counted(100);
  int sent = 0;
  absl::Status status = client.ApplyRopeStream(
      ApplyRopeArgs(),
      [&]() -> absl::StatusOr<absl::Span<const char>> {
        if (++sent == 6) return absl::DataLossError("torn file");
        return next();
      },
      &StreamTest::Ignore);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(status.message(), "torn file");

  status = client.ApplyRopeStream(
      ApplyRopeArgs(), Counted(100),
      [&](absl::Span<const char>) { return absl::DataLossError("disk full"); });
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(status.message(), "disk full");
}

TEST_F(StreamTest, AStreamWithoutProgressIsCancelled) {
  service_.hold = true;
  options_.timeout = absl::Milliseconds(300);
  const Client client = Client::Connect(options_);

  const absl::Status status = client.ApplyRopeStream(Sample().args).status();
  service_.release.Notify();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(
      status.message(),
      options_.target +
          ": the stream stood still for 300ms after 0 responses; the timeout "
          "is over: is the server there, or must the timeout be longer?");
}

TEST_F(StreamTest, ADeadlineOfTheCallsHoldsForTheWholeStream) {
  service_.hold = true;
  const Client client = Client::Connect(options_);
  CallOptions call;
  call.timeout = absl::Milliseconds(50);

  const absl::Status status =
      client.ApplyRopeStream(Sample().args, call).status();
  service_.release.Notify();

  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
}

}  // namespace
}  // namespace posenc
