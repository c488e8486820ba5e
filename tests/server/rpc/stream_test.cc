// Streams of the bulk RPCs, and unusual messages that the generated parser does
// not get whole.

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "absl/base/config.h"
#include "gmock/gmock.h"
#include "tests/fixtures/server.h"

namespace posenc::server {
namespace {

using test::Eventually;
using testing::HasSubstr;
using Status = grpc::StatusCode;

constexpr char kApply[] = "/posenc.v1.PositionalEncodingService/ApplyRope";
constexpr char kApplyStream[] =
    "/posenc.v1.PositionalEncodingService/ApplyRopeStream";

// gRPC's default limit for clients, which most clients never raise.
constexpr std::size_t kDefaultLimit = 4 << 20;

std::vector<float> Ramp(std::size_t n) {
  std::vector<float> values(n);
  for (std::size_t i = 0; i < n; ++i) {
    values[i] = static_cast<float>(i % 251) / 64 - 1;
  }
  return values;
}

v1::RopeSource Rope(int rotary_dim) {
  v1::RopeSource rope;
  rope.mutable_spec()->set_rotary_dim(rotary_dim);
  rope.mutable_spec()->set_pairing(v1::PAIRING_HALF_SPLIT);
  return rope;
}

// [1, tokens, 4, 64] from position `start`.
v1::ApplyRopeRequest Unary(std::int64_t start, std::int64_t tokens) {
  v1::ApplyRopeRequest request;
  *request.mutable_rope() = Rope(64);
  request.set_layout(v1::LAYOUT_BSHD);
  request.mutable_positions()->set_start(start);
  SetTensor(v1::DTYPE_FLOAT32, {1, tokens, 4, 64}, Ramp(tokens * 256),
            request.mutable_q());
  return request;
}

v1::ApplyRopeStreamRequest Chunk(const v1::ApplyRopeRequest& unary,
                                 bool settings) {
  v1::ApplyRopeStreamRequest chunk;
  if (settings) {
    *chunk.mutable_rope() = unary.rope();
    chunk.set_layout(unary.layout());
  }
  *chunk.mutable_positions() = unary.positions();
  *chunk.mutable_q() = unary.q();
  return chunk;
}

class StreamTest : public ServerTest {
 protected:
  // Sends all, half-closes, and returns the answers.
  template <typename Stream, typename Request, typename Response>
  static grpc::Status Exchange(Stream stream,
                               const std::vector<Request>& requests,
                               std::vector<Response>* responses) {
    std::thread writer([&] {
      for (const Request& request : requests) {
        if (!stream->Write(request)) break;
      }
      stream->WritesDone();
    });
    for (Response response; stream->Read(&response);) {
      responses->push_back(response);
    }
    writer.join();
    return stream->Finish();
  }

  grpc::Status ApplyAll(const std::vector<v1::ApplyRopeStreamRequest>& requests,
                        std::vector<v1::ApplyRopeStreamResponse>* responses) {
    grpc::ClientContext context;
    context.set_deadline(Deadline());
    return Exchange(stub_->ApplyRopeStream(&context), requests, responses);
  }
};

TEST_F(StreamTest, AnswersOfTheRecommendedSizeFitClientsThatRaisedNoLimit) {
  const auto channel = grpc::CreateChannel(server_->addresses()[0],
                                           grpc::InsecureChannelCredentials());
  stub_ = v1::PositionalEncodingService::NewStub(channel);
  v1::GetServerInfoResponse info;
  ASSERT_TRUE(
      Call(&Stub::GetServerInfo, v1::GetServerInfoRequest(), &info).ok());
  const std::int64_t chunk = info.limits().stream_chunk_bytes();
  EXPECT_EQ(chunk, (4 << 20) - (64 << 10));

  // [1, tokens, 4, 64] float32: 1 KiB a token.
  std::vector<v1::ApplyRopeStreamRequest> requests = {
      Chunk(Unary(0, chunk / 1024), true)};
  ASSERT_EQ(requests[0].q().data().size(), static_cast<std::size_t>(chunk));
  std::vector<v1::ApplyRopeStreamResponse> rotated;
  const grpc::Status applied = ApplyAll(requests, &rotated);
  EXPECT_TRUE(applied.ok()) << applied.error_message();

  v1::BuildTableStreamRequest table;
  *table.mutable_table()->mutable_rope() = Rope(64);
  table.mutable_table()->mutable_positions()->set_start(0);
  table.mutable_table()->set_rows(50000);  // 12.8 MB
  grpc::ClientContext table_context;
  table_context.set_deadline(Deadline());
  const auto rows = stub_->BuildTableStream(&table_context, table);
  std::size_t largest = 0;
  for (v1::BuildTableStreamResponse response; rows->Read(&response);) {
    largest = std::max(largest, response.ByteSizeLong());
  }
  const grpc::Status built = rows->Finish();
  EXPECT_TRUE(built.ok()) << built.error_message();
  EXPECT_GT(largest, kDefaultLimit / 2);
  EXPECT_LE(largest, kDefaultLimit);

  v1::BuildBiasRequest bias;
  bias.mutable_bias()->mutable_alibi()->set_heads(4);
  bias.set_query_length(1024);
  bias.set_key_length(1024);  // 16 MiB
  grpc::ClientContext bias_context;
  bias_context.set_deadline(Deadline());
  const auto tiles = stub_->BuildBias(&bias_context, bias);
  largest = 0;
  for (v1::BuildBiasResponse response; tiles->Read(&response);) {
    largest = std::max(largest, response.ByteSizeLong());
  }
  const grpc::Status biased = tiles->Finish();
  EXPECT_TRUE(biased.ok()) << biased.error_message();
  EXPECT_GT(largest, kDefaultLimit / 4);  // divided into equal squares
  EXPECT_LE(largest, kDefaultLimit);
}

TEST_F(StreamTest, ApplyRopeStreamAnswersEachChunkInOrderAsTheUnaryCall) {
  std::vector<v1::ApplyRopeStreamRequest> requests;
  std::vector<std::string> expected;
  for (int i = 0; i < 24; ++i) {
    const v1::ApplyRopeRequest unary = Unary(100 * i, 1 + i % 5 * 300);
    v1::ApplyRopeResponse response;
    ASSERT_TRUE(Apply(unary, &response).ok());
    expected.push_back(response.q().data());
    requests.push_back(Chunk(unary, i == 0));
  }
  std::vector<v1::ApplyRopeStreamResponse> responses;
  const grpc::Status status = ApplyAll(requests, &responses);
  ASSERT_TRUE(status.ok()) << status.error_message();
  ASSERT_EQ(responses.size(), requests.size());
  for (std::size_t i = 0; i < responses.size(); ++i) {
    EXPECT_EQ(responses[i].q().data(), expected[i]) << i;
  }
  ExpectNothingInFlight();
}

TEST_F(StreamTest, TheFirstMessageMayComeWithoutTensors) {
  const v1::ApplyRopeRequest unary = Unary(7, 3);
  v1::ApplyRopeStreamRequest settings = Chunk(unary, true);
  settings.clear_q();
  settings.clear_positions();
  std::vector<v1::ApplyRopeStreamResponse> responses;
  const grpc::Status status =
      ApplyAll({settings, Chunk(unary, false)}, &responses);
  ASSERT_TRUE(status.ok()) << status.error_message();
  ASSERT_EQ(responses.size(), 2u);
  EXPECT_FALSE(responses[0].has_q());
  EXPECT_EQ(responses[1].q().shape_size(), 4);
}

TEST_F(StreamTest, BadSettingsAreToldBeforeAnyTensor) {
  v1::ApplyRopeStreamRequest settings;
  settings.mutable_rope()->set_preset("no-such-model");
  settings.set_layout(v1::LAYOUT_BSHD);
  std::vector<v1::ApplyRopeStreamResponse> responses;
  const grpc::Status status = ApplyAll({settings}, &responses);
  EXPECT_EQ(status.error_code(), Status::NOT_FOUND);
  EXPECT_EQ(ReadDetails(status).metadata.at("messageIndex"), "0");
}

TEST_F(StreamTest, SettingsInALaterMessageAreRefusedWithItsIndex) {
  const v1::ApplyRopeRequest unary = Unary(0, 2);
  std::vector<v1::ApplyRopeStreamResponse> responses;
  const grpc::Status status =
      ApplyAll({Chunk(unary, true), Chunk(unary, false), Chunk(unary, true)},
               &responses);
  EXPECT_EQ(status.error_code(), Status::INVALID_ARGUMENT);
  const Details details = ReadDetails(status);
  EXPECT_EQ(details.metadata.at("field"), "rope");
  EXPECT_EQ(details.metadata.at("messageIndex"), "2");
  EXPECT_EQ(responses.size(), 2u) << "responses before the error hold";
}

TEST_F(StreamTest, AStreamWithoutSettingsIsRefused) {
  std::vector<v1::ApplyRopeStreamResponse> responses;
  grpc::Status status = ApplyAll({Chunk(Unary(0, 2), false)}, &responses);
  EXPECT_EQ(status.error_code(), Status::INVALID_ARGUMENT);
  EXPECT_EQ(ReadDetails(status).reason, "ERROR_REASON_FIELD_REQUIRED");
  status = ApplyAll({}, &responses);
  EXPECT_EQ(status.error_code(), Status::INVALID_ARGUMENT);
  EXPECT_TRUE(responses.empty());
}

TEST_F(StreamTest, AnErrorMidStreamNamesTheMessageAndTheField) {
  v1::ApplyRopeRequest bad = Unary(0, 2);
  bad.mutable_q()->mutable_data()->pop_back();
  std::vector<v1::ApplyRopeStreamResponse> responses;
  const grpc::Status status =
      ApplyAll({Chunk(Unary(0, 2), true), Chunk(bad, false)}, &responses);
  EXPECT_EQ(status.error_code(), Status::INVALID_ARGUMENT);
  const Details details = ReadDetails(status);
  EXPECT_EQ(details.reason, "ERROR_REASON_TENSOR_SIZE_MISMATCH");
  EXPECT_EQ(details.metadata.at("field"), "q.data");
  EXPECT_EQ(details.metadata.at("messageIndex"), "1");
  EXPECT_EQ(responses.size(), 1u);
  ExpectNothingInFlight();
}

TEST_F(StreamTest, AChunkOfNoTokensIsAnsweredEmpty) {
  std::vector<v1::ApplyRopeStreamResponse> responses;
  const grpc::Status status = ApplyAll(
      {Chunk(Unary(0, 0), true), Chunk(Unary(0, 1), false)}, &responses);
  ASSERT_TRUE(status.ok()) << status.error_message();
  ASSERT_EQ(responses.size(), 2u);
  EXPECT_EQ(responses[0].q().shape(1), 0);
}

TEST_F(StreamTest, RepositionStreamMovesAsTheUnaryCall) {
  v1::RepositionRequest unary;
  *unary.mutable_old_rope() = Rope(64);
  unary.set_layout(v1::LAYOUT_BSHD);
  unary.mutable_movement()->set_shift(-17);
  SetTensor(v1::DTYPE_FLOAT32, {1, 500, 4, 64}, Ramp(500 * 256),
            unary.mutable_k());
  v1::RepositionResponse expected;
  ASSERT_TRUE(Call(&Stub::Reposition, unary, &expected).ok());
  std::vector<v1::RepositionStreamRequest> requests(3);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (i == 0) {
      *requests[i].mutable_old_rope() = unary.old_rope();
      requests[i].set_layout(unary.layout());
    }
    *requests[i].mutable_movement() = unary.movement();
    *requests[i].mutable_k() = unary.k();
  }
  grpc::ClientContext context;
  context.set_deadline(Deadline());
  std::vector<v1::RepositionStreamResponse> responses;
  const grpc::Status status =
      Exchange(stub_->RepositionStream(&context), requests, &responses);
  ASSERT_TRUE(status.ok()) << status.error_message();
  ASSERT_EQ(responses.size(), 3u);
  for (const auto& response : responses) {
    EXPECT_EQ(response.k().data(), expected.k().data());
  }
}

TEST_F(StreamTest, BuildTableStreamHasTheRowsOfTheUnaryCall) {
  v1::BuildTableRequest unary;
  *unary.mutable_rope() = Rope(64);
  unary.mutable_positions()->set_start(-5);
  unary.set_rows(1000);
  v1::BuildTableResponse expected;
  ASSERT_TRUE(Table(unary, &expected).ok());
  for (const std::int64_t rows : {0, 1, 333, 5000}) {
    v1::BuildTableStreamRequest request;
    *request.mutable_table() = unary;
    request.set_rows_per_message(rows);
    grpc::ClientContext context;
    context.set_deadline(Deadline());
    const auto reader = stub_->BuildTableStream(&context, request);
    std::string cos, sin;
    std::int64_t next = 0;
    for (v1::BuildTableStreamResponse response; reader->Read(&response);) {
      EXPECT_EQ(response.first_row(), next);
      EXPECT_EQ(response.amplitude(), 1);
      next += response.cos().shape(0);
      cos += response.cos().data();
      sin += response.sin().data();
    }
    const grpc::Status status = reader->Finish();
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(cos, expected.cos().data()) << rows;
    EXPECT_EQ(sin, expected.sin().data()) << rows;
  }
}

TEST_F(StreamTest, ATableLongerThanMemoryStopsWhenItsReaderGoes) {
  v1::BuildTableStreamRequest request;
  *request.mutable_table()->mutable_rope() = Rope(64);
  request.mutable_table()->mutable_positions()->set_start(0);
  request.mutable_table()->set_rows(std::int64_t{1} << 31);  // 512 GiB
  grpc::ClientContext context;
  context.set_deadline(Deadline());
  const auto reader = stub_->BuildTableStream(&context, request);
  v1::BuildTableStreamResponse response;
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(reader->Read(&response));
  context.TryCancel();
  while (reader->Read(&response)) {
  }
  EXPECT_EQ(reader->Finish().error_code(), Status::CANCELLED);
  ExpectNothingInFlight();
}

TEST_F(StreamTest, AClientThatGoesMidMessageLeavesNothingBehind) {
  {
    RawCall call(channel_, kApply);  // sends headers, and no message
  }
  ExpectNothingInFlight();
  v1::ApplyRopeResponse response;
  EXPECT_TRUE(Apply(Unary(0, 4), &response).ok());
}

TEST_F(StreamTest, AMessageThatIsNotProtobufIsAnInvalidArgument) {
  std::string response;
  for (const std::string& message :
       {std::string("\xff\xff\xff\xff\xff\xff", 6),
        Unary(0, 4).SerializeAsString().substr(0, 200),
        std::string("\x72\xff\xff\xff\xff\x7f", 6)}) {
    const grpc::Status status = RawUnary(channel_, kApply, message, &response);
    EXPECT_EQ(status.error_code(), Status::INVALID_ARGUMENT);
    EXPECT_THAT(status.error_message(), HasSubstr("not a valid protobuf"));
  }
  EXPECT_TRUE(
      Apply(Unary(0, 4), std::make_unique<v1::ApplyRopeResponse>().get()).ok());
}

TEST_F(StreamTest, PaddedVarintsAreReadAsTheGeneratedParserReadsThem) {
  const v1::ApplyRopeRequest request = Unary(3, 40);
  v1::ApplyRopeResponse expected;
  ASSERT_TRUE(Apply(request, &expected).ok());
  // q's length once more, in five bytes.
  v1::ApplyRopeRequest rest = request;
  rest.clear_q();
  const std::string q = request.q().SerializeAsString();
  std::string message = rest.SerializeAsString() + '\x72';
  std::size_t length = q.size();
  for (int i = 0; i < 4; ++i, length >>= 7) {
    message.push_back(static_cast<char>(length | 0x80));
  }
  message.push_back(static_cast<char>(length));
  std::string bytes;
  const grpc::Status status = RawUnary(channel_, kApply, message + q, &bytes);
  ASSERT_TRUE(status.ok()) << status.error_message();
  v1::ApplyRopeResponse response;
  ASSERT_TRUE(response.ParseFromString(bytes));
  EXPECT_EQ(response.q().data(), expected.q().data());
}

TEST_F(StreamTest, MoreThanWasAnnouncedIsAnError) {
  const auto call = [this](const std::string& announced) {
    grpc::ClientContext context;
    context.set_deadline(Deadline());
    context.AddMetadata("posenc-message-bytes", announced);
    v1::ApplyRopeResponse response;
    return stub_->ApplyRope(&context, Unary(0, 4), &response);
  };
  const std::size_t bytes = Unary(0, 4).ByteSizeLong();
  EXPECT_TRUE(call(std::to_string(bytes)).ok());
  const grpc::Status status = call(std::to_string(bytes - 1));
  EXPECT_EQ(status.error_code(), Status::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr(std::to_string(bytes)));
  EXPECT_EQ(call("0").error_code(), Status::INVALID_ARGUMENT);
}

// A stream claims four times the announced bytes, or the whole budget. Here its
// responses cannot be written over their requests.
TEST_F(StreamTest, AResponseFitsBesideItsRequestWhateverTheStreamHasClaimed) {
  constexpr std::int64_t kBudget = 8 << 20;
  for (const int part : {2, 4, 5}) {
    SCOPED_TRACE(part);
    Start(
        {.limits = {.max_request_bytes = kBudget, .in_flight_bytes = kBudget}});
    // A token has 1 KiB, and a message less than 1 KiB beside its tokens.
    v1::ApplyRopeRequest unary = Unary(0, kBudget / part / 1024 - 1);
    unary.mutable_rope()->mutable_spec()->set_output_pairing(
        v1::PAIRING_INTERLEAVED);
    std::vector<v1::ApplyRopeStreamRequest> requests(6, Chunk(unary, false));
    requests[0] = Chunk(unary, true);
    grpc::ClientContext context;
    context.set_deadline(Deadline());
    context.AddMetadata("posenc-message-bytes", std::to_string(kBudget / part));
    std::vector<v1::ApplyRopeStreamResponse> responses;
    const grpc::Status status =
        Exchange(stub_->ApplyRopeStream(&context), requests, &responses);
    EXPECT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(responses.size(), requests.size());
    ExpectNothingInFlight();
  }
}

TEST_F(StreamTest, AnnouncementsThatCannotBeAreRefusedUnread) {
  const std::string beyond =
      std::to_string(ServerOptions().limits.max_request_bytes + 1);
  for (const auto& [announced, code, fact] :
       std::vector<std::tuple<std::string, grpc::StatusCode, std::string>>{
           {"what?", Status::INVALID_ARGUMENT, "posenc-message-bytes: 'what?'"},
           {"-1", Status::INVALID_ARGUMENT, "'-1'"},
           {"", Status::INVALID_ARGUMENT, "''"},
           {"18446744073709551616", Status::INVALID_ARGUMENT, "number"},
           {beyond, Status::RESOURCE_EXHAUSTED, beyond},
           {"4611686018427387904", Status::RESOURCE_EXHAUSTED, "limit"}}) {
    for (const char* method : {kApply, kApplyStream}) {
      SCOPED_TRACE(announced + " " + method);
      // The client never ends it: the server does not wait for the message.
      RawCall call(channel_, method, {{"posenc-message-bytes", announced}});
      const grpc::Status status = call.Finish();
      EXPECT_EQ(status.error_code(), code) << status.error_message();
      EXPECT_THAT(status.error_message(), HasSubstr(fact));
      ExpectNothingInFlight();
    }
  }
}

class CrowdedTest : public StreamTest {
 protected:
  void SetUp() override {
    // Beside a large table, the rest is less than a call's claim.
    Start({.limits = {.max_request_bytes = 1 << 20,
                      .in_flight_bytes = kLargeTableBytes + (32 << 10),
                      .max_waiting = 1}});
  }
};

TEST_F(CrowdedTest, ACallWaitsForRoomAndIsRefusedWhereTheQueueIsFull) {
  std::unique_ptr<RawCall> first = HoldLargeTable();
  std::vector<grpc::Status> waited(4);
  std::vector<std::multimap<std::string, std::string>> trailers(4);
  std::atomic<int> refused{0};
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < waited.size(); ++i) {
    threads.emplace_back([&, i] {
      grpc::ClientContext context;
      context.set_deadline(Deadline());
      v1::ApplyRopeResponse response;
      waited[i] = stub_->ApplyRope(&context, Unary(0, 4), &response);
      for (const auto& [key, value] : context.GetServerTrailingMetadata()) {
        trailers[i].emplace(std::string(key.data(), key.size()),
                            std::string(value.data(), value.size()));
      }
      if (!waited[i].ok()) refused.fetch_add(1);
    });
  }
  // One waits and three are refused, before the first makes room.
  EXPECT_TRUE(Eventually([&refused] { return refused.load() >= 3; }));
  first.reset();
  for (std::thread& thread : threads) thread.join();
  int served = 0;
  for (std::size_t i = 0; i < waited.size(); ++i) {
    if (waited[i].ok()) {
      ++served;
      continue;
    }
    EXPECT_EQ(waited[i].error_code(), Status::RESOURCE_EXHAUSTED);
    const Details details = ReadDetails(waited[i]);
    EXPECT_EQ(details.reason, "ERROR_REASON_OVERLOADED");
    EXPECT_TRUE(details.has_retry_info);
    EXPECT_EQ(trailers[i].count("grpc-retry-pushback-ms"), 1u);
  }
  EXPECT_EQ(served, 1);
  ExpectNothingInFlight();
}

TEST_F(StreamTest, AWaitingStreamEndsWhileMemoryIsOverTheBudget) {
#if defined(ABSL_HAVE_ADDRESS_SANITIZER) || defined(ABSL_HAVE_THREAD_SANITIZER)
  GTEST_SKIP() << "a sanitizer's heap cannot be measured";
#endif
  Start(
      {.limits = {.max_request_bytes = 4 << 20, .in_flight_bytes = 16 << 20}});
  grpc::ClientContext context;
  context.set_deadline(Deadline());
  const auto stream = stub_->ApplyRopeStream(&context);
  v1::ApplyRopeStreamResponse response;
  ASSERT_TRUE(stream->Write(Chunk(Unary(0, 1), true)));
  ASSERT_TRUE(stream->Read(&response));
  // The server measures the heap of this process.
  const std::string much(128 << 20, 'x');
  EXPECT_FALSE(stream->Read(&response));
  const grpc::Status status = stream->Finish();
  EXPECT_EQ(status.error_code(), Status::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("waiting stream"));
  EXPECT_EQ(much.back(), 'x');
}

class HurriedTest : public StreamTest {
 protected:
  void SetUp() override {
    Start({.limits = {.default_deadline = absl::Milliseconds(50)}});
  }
};

TEST_F(HurriedTest, ACallWithoutADeadlineGetsTheServersOwn) {
  // On a busy machine the deadline may pass before the first answer.
  bool answered = false;
  EXPECT_TRUE(Eventually([&] {
    grpc::ClientContext context;  // no deadline
    const auto stream = stub_->ApplyRopeStream(&context);
    v1::ApplyRopeStreamResponse response;
    answered =
        stream->Write(Chunk(Unary(0, 1), true)) && stream->Read(&response);
    // Never half-closed.
    EXPECT_FALSE(stream->Read(&response));
    EXPECT_EQ(stream->Finish().error_code(), Status::DEADLINE_EXCEEDED);
    return answered;
  }));
  ExpectNothingInFlight();
}

TEST_F(HurriedTest, ASlowReaderIsCutOff) {
  v1::BuildTableStreamRequest request;
  *request.mutable_table()->mutable_rope() = Rope(64);
  request.mutable_table()->mutable_positions()->set_start(0);
  request.mutable_table()->set_rows(std::int64_t{1} << 31);
  grpc::ClientContext context;  // no deadline
  const auto reader = stub_->BuildTableStream(&context, request);
  // Reads nothing until the server, after it has begun, gives up.
  reader->WaitForInitialMetadata();
  ExpectNothingInFlight();
  v1::BuildTableStreamResponse response;
  while (reader->Read(&response)) {
  }
  EXPECT_FALSE(reader->Finish().ok());
}

}  // namespace
}  // namespace posenc::server
