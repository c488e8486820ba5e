// The client's streams of tensors against a scripted service, over a real
// socket.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "posenc/client.h"
#include "tests/fixtures/client.h"

namespace posenc {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Inverts every byte, so that results differ from inputs.
std::string Turned(const std::string& bytes) {
  std::string turned = bytes;
  for (char& byte : turned) byte = static_cast<char>(~byte);
  return turned;
}

v1::Tensor Turned(v1::Tensor tensor) {
  tensor.set_data(Turned(tensor.data()));
  return tensor;
}

class StreamService : public v1::PositionalEncodingService::Service {
 public:
  grpc::Status GetServerInfo(grpc::ServerContext*,
                             const v1::GetServerInfoRequest*,
                             v1::GetServerInfoResponse* response) override {
    if (infos++ == 0 && hold_info) {
      info_held.Notify();
      release.WaitForNotification();
    }
    response->mutable_limits()->set_stream_chunk_bytes(chunk_bytes);
    return grpc::Status::OK;
  }

  grpc::Status ResolveRope(grpc::ServerContext*, const v1::ResolveRopeRequest*,
                           v1::ResolveRopeResponse* response) override {
    ++resolved;
    response->mutable_spec()->mutable_axes()->add_sections(1);
    response->mutable_spec()->mutable_axes()->add_sections(1);
    response->mutable_spec()->mutable_axes()->add_sections(1);
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
    return Serve<v1::ApplyRopeStreamResponse>(
        context, stream, &applied,
        [](const v1::ApplyRopeStreamRequest& request,
           v1::ApplyRopeStreamResponse* response) {
          if (request.has_q()) *response->mutable_q() = Turned(request.q());
          if (request.has_k()) *response->mutable_k() = Turned(request.k());
        });
  }

  grpc::Status RepositionStream(
      grpc::ServerContext* context,
      grpc::ServerReaderWriter<v1::RepositionStreamResponse,
                               v1::RepositionStreamRequest>* stream) override {
    return Serve<v1::RepositionStreamResponse>(
        context, stream, &moved,
        [](const v1::RepositionStreamRequest& request,
           v1::RepositionStreamResponse* response) {
          *response->mutable_k() = Turned(request.k());
        });
  }

  // Set before the calls.
  std::int64_t chunk_bytes = 64;
  grpc::Status unary_status = Error(grpc::StatusCode::RESOURCE_EXHAUSTED,
                                    "ERROR_REASON_MESSAGE_TOO_LARGE", "");
  int unary_failures = 1000;  // calls that end with unary_status
  int fail_at = -1;  // ends a stream with `end` in place of this response
  grpc::Status end;
  int extra = 0;           // responses beyond the requested ones
  bool hold = false;       // streams wait for `release`
  bool hold_info = false;  // the first GetServerInfo waits for `release`
  absl::Notification release;

  // Read after them.
  std::atomic<int> infos = 0;
  absl::Notification info_held;
  int unary = 0, resolved = 0;
  std::vector<v1::ApplyRopeStreamRequest> applied;
  std::vector<v1::RepositionStreamRequest> moved;
  std::string announced;

 private:
  template <typename Response, typename Stream, typename Request,
            typename Answer>
  grpc::Status Serve(grpc::ServerContext* context, Stream* stream,
                     std::vector<Request>* seen, const Answer& answer) {
    const auto found = context->client_metadata().find("posenc-message-bytes");
    if (found != context->client_metadata().end()) {
      announced.assign(found->second.data(), found->second.size());
    }
    Request request;
    while (stream->Read(&request)) {
      if (static_cast<int>(seen->size()) == fail_at) return end;
      if (hold) release.WaitForNotification();
      seen->push_back(request);
      Response response;
      answer(request, &response);
      stream->Write(response);
    }
    for (int i = 0; i < extra; ++i) stream->Write(Response());
    return grpc::Status::OK;
  }
};

class StreamTest : public ServiceTest<StreamService> {
 protected:
  // Chunks of 8 bytes until `count` have been sent.
  static std::function<absl::StatusOr<bool>(ApplyRopeChunk*)> Counted(
      int count) {
    auto sent = std::make_shared<int>(0);
    return [count, sent](ApplyRopeChunk* chunk) -> absl::StatusOr<bool> {
      if (*sent == count) return false;
      const auto bytes =
          std::make_shared<std::string>(8, static_cast<char>((*sent)++));
      chunk->q = TensorView{v1::DTYPE_FLOAT32, {1, 1, 1, 2}, *bytes};
      chunk->owner = bytes;
      return true;
    };
  }
  static absl::Status Ignore(const ApplyRopeResult&) {
    return absl::OkStatus();
  }
};

// q: 6 tokens of 4 heads of 2 floats, 32 bytes a token; k: of one head.
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

struct Keys {
  std::string k_bytes = Bytes(2 * 3 * 8);
  RepositionArgs args;
  Keys() {
    args.old_rope = FromPreset("llama-3.1-8b");
    args.movement.set_shift(-5);
    args.layout = v1::LAYOUT_BSHD;
    args.k = TensorView{v1::DTYPE_FLOAT32, {2, 3, 1, 2}, k_bytes};
  }
};

TEST_F(StreamTest, TensorsComeBackWholeFromTheirParts) {
  const Client client = Client::Connect(options_);
  const Sample sample;

  const absl::StatusOr<ApplyRopeResult> result =
      client.ApplyRopeStream(sample.args);

  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(AsString(result->q->bytes), Turned(sample.q_bytes));
  EXPECT_EQ(result->q->shape, sample.args.q->shape);
  EXPECT_EQ(AsString(result->k->bytes), Turned(sample.k_bytes));
  EXPECT_EQ(result->k->shape, sample.args.k->shape);
  // Chunks of 64 bytes: two tokens of q, then two and one, twice; all of k.
  ASSERT_EQ(service_.applied.size(), 5u);
  EXPECT_THAT(service_.applied[0].q().shape(), ElementsAre(1, 2, 4, 2));
  EXPECT_THAT(service_.applied[1].q().shape(), ElementsAre(1, 1, 4, 2));
  EXPECT_THAT(service_.applied[4].k().shape(), ElementsAre(2, 3, 1, 2));
  EXPECT_EQ(service_.applied[1].positions().start(), 102);
  EXPECT_EQ(service_.applied[4].positions().start(), 100);
}

TEST_F(StreamTest, SettingsAreInTheFirstMessageOnly) {
  const Client client = Client::Connect(options_);
  const Sample sample;
  ASSERT_TRUE(client.ApplyRopeStream(sample.args).ok());

  const v1::ApplyRopeStreamRequest& first = service_.applied[0];
  EXPECT_EQ(first.rope().preset(), "llama-3.1-8b");
  EXPECT_EQ(first.layout(), v1::LAYOUT_BSHD);
  EXPECT_EQ(first.direction(), v1::DIRECTION_ADJOINT);
  EXPECT_EQ(first.query_scale().beta(), 0.5);
  for (std::size_t i = 1; i < service_.applied.size(); ++i) {
    const v1::ApplyRopeStreamRequest& later = service_.applied[i];
    EXPECT_FALSE(later.has_rope() || later.has_query_scale());
    EXPECT_EQ(later.layout(), v1::LAYOUT_UNSPECIFIED);
    EXPECT_EQ(later.direction(), v1::DIRECTION_UNSPECIFIED);
    EXPECT_TRUE(later.has_positions());
  }
}

TEST_F(StreamTest, NoMessageIsLargerThanWasAnnounced) {
  const Client client = Client::Connect(options_);
  const Sample sample;
  ASSERT_TRUE(client.ApplyRopeStream(sample.args).ok());

  std::size_t largest = 0;
  for (const auto& request : service_.applied) {
    largest = std::max(largest, request.ByteSizeLong());
  }
  EXPECT_GE(std::stoul(service_.announced), largest);
  EXPECT_LE(std::stoul(service_.announced), largest + 300);
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

TEST_F(StreamTest, RepositionGoesThroughAStreamToo) {
  const Client client = Client::Connect(options_);
  const std::string k = Bytes(2 * 5 * 32);
  RepositionArgs args;
  args.old_rope = FromPreset("a");
  args.new_rope = FromPreset("b");
  args.movement.mutable_old_positions()->mutable_starts()->add_values(10);
  args.movement.mutable_old_positions()->mutable_starts()->add_values(20);
  args.movement.mutable_new_positions()->set_start(0);
  args.layout = v1::LAYOUT_BHSD;
  args.k = TensorView{v1::DTYPE_BFLOAT16, {2, 1, 5, 16}, k};

  const absl::StatusOr<TensorResult> result = client.RepositionStream(args);

  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(AsString(result->tensor.bytes), Turned(k));
  ASSERT_EQ(service_.moved.size(), 6u);  // 2, 2 and 1 tokens of each
  EXPECT_EQ(service_.moved[0].new_rope().preset(), "b");
  EXPECT_FALSE(service_.moved[4].has_old_rope());
  const v1::Movement& fifth = service_.moved[4].movement();
  EXPECT_THAT(fifth.old_positions().starts().values(), ElementsAre(22));
  EXPECT_EQ(fifth.new_positions().start(), 2);
}

TEST_F(StreamTest, WhatIsAboveTheThresholdIsStreamed) {
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

TEST_F(StreamTest, WhatIsAboveTheMessageLimitIsStreamed) {
  service_.chunk_bytes = 4 << 20;
  options_.max_message_bytes = 1 << 20;
  const Client client = Client::Connect(options_);
  const std::string k = Bytes(3 << 20);
  RepositionArgs args;
  args.movement.set_shift(5);
  args.layout = v1::LAYOUT_THD;
  args.k = TensorView{v1::DTYPE_FLOAT32, {3 << 12, 1, 64}, k};

  const absl::StatusOr<TensorResult> result = client.Reposition(args);

  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(AsString(result->tensor.bytes) == Turned(k));
  EXPECT_EQ(service_.moved.size(), 4u);  // 1 MiB holds no chunk of 1 MiB
}

TEST_F(StreamTest, WhatIsAboveTheServersLimitIsStreamed) {
  const Client client = Client::Connect(options_);
  const Sample sample;

  const absl::StatusOr<ApplyRopeResult> result = client.ApplyRope(sample.args);

  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(AsString(result->q->bytes), Turned(sample.q_bytes));
  EXPECT_EQ(service_.unary, 1);
}

// Only tensors can be cut. The service would accept the sixth call, so that a
// client that retries forever ends.
TEST_F(StreamTest, ALargeRequestWithoutTensorBytesIsRefusedOnce) {
  service_.unary_failures = 5;
  const Client client = Client::Connect(options_);
  const std::string config(1000, ' ');
  ASSERT_GT(static_cast<std::int64_t>(config.size()), service_.chunk_bytes);
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

TEST_F(StreamTest, TheServerIsAskedOnceForItsChunks) {
  const Client client = Client::Connect(options_);
  ASSERT_TRUE(client.ApplyRopeStream(Sample().args).ok());
  ASSERT_TRUE(client.ApplyRopeStream(Sample().args).ok());

  EXPECT_EQ(service_.infos, 1);
}

TEST_F(StreamTest, NothingIsStreamedToAServerThatDoesNotAnswerInTime) {
  service_.hold_info = true;
  options_.timeout = absl::Milliseconds(100);
  const Client client = Client::Connect(options_);

  const absl::Status status = client.ApplyRopeStream(Sample().args).status();

  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_TRUE(service_.applied.empty());
  service_.release.Notify();
}

TEST_F(StreamTest, NobodyWaitsForAnothersQuestionAboutChunks) {
  absl::Notification answered;
  service_.hold_info = true;
  const Client client = Client::Connect(options_);
  absl::Status first, second;
  std::thread asking(
      [&] { first = client.ApplyRopeStream(Sample().args).status(); });
  service_.info_held.WaitForNotification();

  std::thread other([&] {
    second = client.RepositionStream(Keys().args).status();
    answered.Notify();
  });
  // Only limits a failure: the first question stays open until it is released.
  EXPECT_TRUE(answered.WaitForNotificationWithTimeout(absl::Seconds(20)));
  service_.release.Notify();
  asking.join();
  other.join();

  EXPECT_TRUE(first.ok()) << first;
  EXPECT_TRUE(second.ok()) << second;
}

// [2, 3] may be two sequences or two axes: the encoding decides.
TEST_F(StreamTest, ThePresetTellsTheAxesOfAmbiguousIds) {
  const Client client = Client::Connect(options_);
  Sample sample;
  v1::Tensor* const ids = sample.args.positions.mutable_ids();
  ids->set_dtype(v1::DTYPE_INT32);
  ids->add_shape(2);
  ids->add_shape(3);
  for (int i = 0; i < 6; ++i) ids->add_values(i);

  ASSERT_TRUE(client.ApplyRopeStream(sample.args).ok());

  EXPECT_EQ(service_.resolved, 1);
  EXPECT_THAT(service_.applied[0].positions().ids().values(),
              ElementsAre(0, 1, 3, 4));

  service_.applied.clear();
  sample.args.rope.mutable_spec()->set_rope_theta(10);  // one axis
  ASSERT_TRUE(client.ApplyRopeStream(sample.args).ok());
  EXPECT_EQ(service_.resolved, 1);
  EXPECT_THAT(service_.applied[2].positions().ids().values(),
              ElementsAre(3, 4));
}

TEST_F(StreamTest, FrequenciesByHeadThatCannotBeCutAreTooLarge) {
  options_.max_message_bytes = 70000;
  const Client client = Client::Connect(options_);
  const std::string q = Bytes(2 * 80000);
  ApplyRopeArgs args;
  auto* const frequencies =
      args.rope.mutable_spec()->mutable_explicit_frequencies();
  frequencies->set_heads(2);
  args.positions = StartAt(0);
  args.layout = v1::LAYOUT_BHSD;
  args.q = TensorView{v1::DTYPE_FLOAT32, {2, 2, 2500, 4}, q};

  const absl::Status status = client.ApplyRope(args).status();

  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(),
            "q: 80000 bytes cannot be cut into smaller messages; the limit is "
            "70000, and frequencies by head need all heads together");
  frequencies->set_heads(0);
  EXPECT_TRUE(client.ApplyRope(args).ok());
}

TEST_F(StreamTest, TellsHowFarItIs) {
  const Client client = Client::Connect(options_);
  const Sample sample;
  std::vector<std::int64_t> done;
  CallOptions call;
  call.on_progress = [&](std::int64_t bytes, std::int64_t of) {
    EXPECT_EQ(of, 240);
    done.push_back(bytes);
  };

  ASSERT_TRUE(client.ApplyRopeStream(sample.args, call).ok());

  EXPECT_THAT(done, ElementsAre(64, 96, 160, 192, 240));
}

TEST_F(StreamTest, ChunksComeAndGoInOrderAFewAtATime) {
  const Client client = Client::Connect(options_);
  int sent = 0, received = 0, most = 0;
  const auto next = Counted(100);

  const absl::Status status = client.ApplyRopeStream(
      ApplyRopeStreamSettings(),
      [&](ApplyRopeChunk* chunk) {
        most = std::max(most, ++sent - received);
        return next(chunk);
      },
      [&](const ApplyRopeResult& result) {
        EXPECT_EQ(AsString(result.q->bytes),
                  std::string(8, static_cast<char>(~received)));
        ++received;
        return absl::OkStatus();
      });

  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(received, 100);
  EXPECT_LE(most, 4);
}

TEST_F(StreamTest, AStreamOfNothingIsFine) {
  const Client client = Client::Connect(options_);

  EXPECT_TRUE(client
                  .ApplyRopeStream(ApplyRopeStreamSettings(), Counted(0),
                                   &StreamTest::Ignore)
                  .ok());
}

TEST_F(StreamTest, TheServersErrorTellsTheMessage) {
  service_.fail_at = 3;
  service_.end = Error(grpc::StatusCode::INVALID_ARGUMENT,
                       "ERROR_REASON_FIELD_INVALID", "3");
  const Client client = Client::Connect(options_);
  int received = 0;

  const absl::Status status = client.ApplyRopeStream(
      ApplyRopeStreamSettings(), Counted(100), [&](const ApplyRopeResult&) {
        ++received;
        return absl::OkStatus();
      });

  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ErrorReason(status), "ERROR_REASON_FIELD_INVALID");
  EXPECT_EQ(ErrorFact(status, "messageIndex"), "3");
  EXPECT_EQ(ErrorFact(status, "field"), "");
  EXPECT_EQ(received, 3);
}

TEST_F(StreamTest, AnEndBeforeAllAnswersIsInternal) {
  service_.fail_at = 2;
  const Client client = Client::Connect(options_);

  const absl::Status status = client.ApplyRopeStream(
      ApplyRopeStreamSettings(), Counted(100), &StreamTest::Ignore);

  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("ended after 2 of"));
}

TEST_F(StreamTest, MoreAnswersThanMessagesAreInternal) {
  service_.extra = 1;
  const Client client = Client::Connect(options_);

  const absl::Status status = client.ApplyRopeStream(
      ApplyRopeStreamSettings(), Counted(2), &StreamTest::Ignore);

  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(status.message(), "more responses than requests");
}

TEST_F(StreamTest, ErrorsOfTheCallersEndTheCall) {
  const Client client = Client::Connect(options_);
  const auto next = Counted(100);
  int sent = 0, received = 0;
  absl::Status status = client.ApplyRopeStream(
      ApplyRopeStreamSettings(),
      [&](ApplyRopeChunk* chunk) -> absl::StatusOr<bool> {
        if (++sent == 6) return absl::DataLossError("torn file");
        return next(chunk);
      },
      &StreamTest::Ignore);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(status.message(), "torn file");

  status = client.ApplyRopeStream(ApplyRopeStreamSettings(), Counted(100),
                                  [&](const ApplyRopeResult&) -> absl::Status {
                                    if (++received == 5)
                                      return absl::DataLossError("disk full");
                                    return absl::OkStatus();
                                  });
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(status.message(), "disk full");
  EXPECT_EQ(received, 5);
}

TEST_F(StreamTest, AMessageAboveWhatWasAnnouncedIsNotSent) {
  const Client client = Client::Connect(options_);
  ApplyRopeStreamSettings settings;
  settings.max_message_bytes = 10;

  const absl::Status status =
      client.ApplyRopeStream(settings, Counted(1), &StreamTest::Ignore);

  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("at most 10"));
  EXPECT_TRUE(service_.applied.empty());
}

TEST_F(StreamTest, AStreamThatStandsStillIsGivenUp) {
  service_.hold = true;
  options_.timeout = absl::Milliseconds(300);
  const Client client = Client::Connect(options_);

  const absl::Status status = client.ApplyRopeStream(
      ApplyRopeStreamSettings(), Counted(3), &StreamTest::Ignore);
  service_.release.Notify();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(
      status.message(),
      options_.target + ": the stream stood still for 300ms after 0 responses");
}

TEST_F(StreamTest, ADeadlineOfTheCallsHoldsForTheWholeStream) {
  service_.hold = true;
  const Client client = Client::Connect(options_);
  CallOptions call;
  call.timeout = absl::Milliseconds(50);

  const absl::Status status = client.ApplyRopeStream(
      ApplyRopeStreamSettings(), Counted(3), &StreamTest::Ignore, call);
  service_.release.Notify();

  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
}

TEST_F(StreamTest, AClientOfAStubAloneHasNoStreams) {
  const Client client(
      std::shared_ptr<v1::PositionalEncodingService::StubInterface>(
          v1::PositionalEncodingService::NewStub(
              server_->InProcessChannel(grpc::ChannelArguments()))));

  EXPECT_EQ(client.ApplyRopeStream(Sample().args).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace posenc
