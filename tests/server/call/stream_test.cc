// Streams, and unusual messages that the generated parser does not get whole.

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
#include "tests/fixtures/byte_stream.h"
#include "tests/fixtures/server.h"

namespace posenc::server {
namespace {

using test::Eventually;
using testing::ElementsAre;
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

// Returns a request with a tensor [1, tokens, 4, 64] whose positions begin at
// `start`.
v1::ApplyRopeRequest Unary(std::int64_t start, std::int64_t tokens) {
  v1::ApplyRopeRequest request;
  *request.mutable_rope() = Rope(64);
  request.set_layout(v1::LAYOUT_BSHD);
  request.mutable_positions()->set_start(start);
  SetTensor(v1::DTYPE_FLOAT32, {1, tokens, 4, 64}, Ramp(tokens * 256),
            request.mutable_q());
  return request;
}

class StreamTest : public ServerTest {};

TEST_F(StreamTest, AnswersOfTheRecommendedSizeFitClientsThatRaisedNoLimit) {
  const auto channel = grpc::CreateChannel(server_->addresses()[0],
                                           grpc::InsecureChannelCredentials());
  stub_ = v1::PositionalEncodingService::NewStub(channel);
  v1::GetServerInfoResponse info;
  ASSERT_TRUE(
      Call(&Stub::GetServerInfo, v1::GetServerInfoRequest(), &info).ok());
  const std::int64_t chunk = info.limits().stream_chunk_bytes();
  EXPECT_EQ(chunk, (4 << 20) - (64 << 10));

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
      if (next == 0) {
        EXPECT_THAT(response.whole_shape(), ElementsAre(1000, 32));
      } else {
        EXPECT_TRUE(response.whole_shape().empty());
      }
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

TEST_F(StreamTest, PaddedVarintsAreReadAsTheGeneratedParserReadsThem) {
  const v1::ApplyRopeRequest request = Unary(3, 40);
  v1::ApplyRopeResponse expected;
  ASSERT_TRUE(Apply(request, &expected).ok());
  // Writes q again, with its length in five bytes.
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
    // The stream gets the bytes of several such requests, one after the other.
    std::string bytes = TakeData(&unary);
    const std::size_t size = bytes.size();
    unary.mutable_q()->set_shape(0, 6);
    for (int i = 0; i < 5; ++i) bytes += bytes.substr(0, size);
    std::vector<std::size_t> ends;
    for (int i = 1; i <= 6; ++i) ends.push_back(i * size);
    grpc::ClientContext context;
    context.set_deadline(Deadline());
    context.AddMetadata("posenc-message-bytes", std::to_string(kBudget / part));
    std::string rotated;
    const grpc::Status status = Exchange(
        stub_->ApplyRopeStream(&context).get(),
        StreamOf<v1::ApplyRopeStreamRequest>(unary, bytes, ends), &rotated);
    EXPECT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(rotated.size(), bytes.size());
    ExpectNothingInFlight();
  }
}

TEST_F(StreamTest, ImpossibleAnnouncementsAreRefusedUnread) {
  const std::string beyond =
      std::to_string(ServerOptions().limits.max_request_bytes + 1);
  for (const auto& [announced, code, fact] :
       std::vector<std::tuple<std::string, grpc::StatusCode, std::string>>{
           {"what?", Status::INVALID_ARGUMENT, "posenc-message-bytes: 'what?'"},
           {"-1", Status::INVALID_ARGUMENT, "'-1'"},
           {"", Status::INVALID_ARGUMENT, "''"},
           {"+5", Status::INVALID_ARGUMENT, "'+5'"},
           {" 5", Status::INVALID_ARGUMENT, "' 5'"},
           {"18446744073709551616", Status::RESOURCE_EXHAUSTED, "limit"},
           {beyond, Status::RESOURCE_EXHAUSTED, beyond},
           {"4611686018427387904", Status::RESOURCE_EXHAUSTED, "limit"}}) {
    for (const char* method : {kApply, kApplyStream}) {
      SCOPED_TRACE(announced + " " + method);
      // The client never ends the call: the server does not wait for the
      // message.
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
    // A large table leaves less memory than a call claims.
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
  threads.reserve(waited.size());
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
  // One call waits and three are refused, before the first call frees its
  // memory.
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
  v1::ApplyRopeRequest call = Unary(0, 2);
  const std::string data = TakeData(&call);
  // The first message has the first of two tokens.
  ASSERT_TRUE(stream->Write(
      StreamOf<v1::ApplyRopeStreamRequest>(call, data, {data.size() / 2})[0]));
  ASSERT_TRUE(stream->Read(&response));
  // The server measures the heap of this process, so `much` exceeds the budget.
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
    answered = stream->Write(
                   StreamInPieces<v1::ApplyRopeStreamRequest>(Unary(0, 1), 1024)
                       .front()) &&
               stream->Read(&response);
    // The client has not half-closed.
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
  // Reads only the headers, and no message until the server gives up.
  reader->WaitForInitialMetadata();
  ExpectNothingInFlight();
  v1::BuildTableStreamResponse response;
  while (reader->Read(&response)) {
  }
  EXPECT_FALSE(reader->Finish().ok());
}

}  // namespace
}  // namespace posenc::server
