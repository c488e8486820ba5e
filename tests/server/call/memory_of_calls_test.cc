// The memory of calls: claims before messages and responses exist, and
// refusals.

#include <atomic>
#include <chrono>
#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/fixtures/server_errors.h"

namespace posenc::server {
namespace {

using test::Eventually;
using testing::HasSubstr;

class MemoryOfCallsTest : public ServerTest {};

TEST_F(MemoryOfCallsTest, AResponseWaitsForRoomNoLongerThanItsCaller) {
  Start({.limits = {.max_request_bytes = 1 << 20,
                    .max_response_bytes = 4 << 20,
                    .in_flight_bytes = 5 << 20}});
  {
    const std::unique_ptr<RawCall> unread = HoldLargeTable();
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() +
                         std::chrono::milliseconds(100));
    v1::BuildTableResponse table;
    const grpc::Status status =
        stub_->BuildTable(&context, LargeTable(), &table);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
    // Other calls get memory while the large call waits.
    v1::GetServerInfoResponse info;
    EXPECT_TRUE(
        Call(&Stub::GetServerInfo, v1::GetServerInfoRequest(), &info).ok());
  }
  ExpectNothingInFlight();
}

TEST_F(MemoryOfCallsTest, AResponseThatNeverFitsIsTooLarge) {
  Start({.limits = {.max_request_bytes = 1 << 20, .in_flight_bytes = 2 << 20}});
  v1::BuildTableResponse table;
  const grpc::Status status = Call(&Stub::BuildTable, LargeTable(), &table);
  EXPECT_EQ(status.error_code(), kExhausted);
  EXPECT_EQ(ReadDetails(status).reason, "ERROR_REASON_MESSAGE_TOO_LARGE");
  EXPECT_NE(status.error_message().find("--in-flight-bytes"),
            std::string::npos);
}

// A request of a few bytes gives 256 KiB of frequencies: peers that do not read
// them must not exceed the budget.
TEST_F(MemoryOfCallsTest,
       AResponseThatIsComputedBeforeItsSizeIsKnownIsClaimed) {
  v1::ResolveRopeRequest request;
  v1::RopeSpec* const spec = request.mutable_rope()->mutable_spec();
  spec->set_pairing(v1::PAIRING_HALF_SPLIT);
  spec->set_rope_theta(10000);
  spec->set_rotary_dim(65536);
  for (const auto& [budget, code] :
       {std::pair{128 << 10, kExhausted},
        // This response would fit into the sixteenth above the budget, but not
        // with the 16 KiB of its call.
        std::pair{252 << 10, kExhausted},
        std::pair{512 << 10, grpc::StatusCode::OK}}) {
    Start(
        {.limits = {.max_request_bytes = 64 << 10, .in_flight_bytes = budget}});
    v1::ResolveRopeResponse response;
    const grpc::Status status =
        Call(&Stub::ResolveRope, request, &response, /*announce=*/true);
    EXPECT_EQ(status.error_code(), code) << status.error_message();
    if (!status.ok()) {
      EXPECT_EQ(ReadDetails(status).reason, "ERROR_REASON_MESSAGE_TOO_LARGE");
    }
    ExpectNothingInFlight();
  }
  Start(
      {.limits = {.max_request_bytes = 64 << 10, .in_flight_bytes = 16 << 20}});
  {
    // The responses together have more bytes than gRPC's client reads from the
    // connection by itself.
    std::vector<std::unique_ptr<RawCall>> unread;
    for (int i = 0; i < 40; ++i) {
      unread.push_back(std::make_unique<RawCall>(
          channel_, "/posenc.v1.PositionalEncodingService/ResolveRope"));
      unread.back()->WriteLast(request.SerializeAsString());
    }
    EXPECT_TRUE(Eventually(
        [this] { return server_->Status().claimed_bytes >= 256 << 10; }));
  }
  ExpectNothingInFlight();
}

// 16 MiB of such numbers once took 500 MiB.
TEST_F(MemoryOfCallsTest, NumbersThatWouldTakeEightTimesTheirBytesAreRefused) {
  v1::BuildPositionsRequest request;
  request.mutable_packed()->mutable_lengths()->Resize(10 << 20, 0);
  v1::BuildPositionsResponse response;
  const grpc::Status status = Call(&Stub::BuildPositions, request, &response);
  EXPECT_EQ(status.error_code(), kInvalid);
  EXPECT_EQ(ReadDetails(status).violated_field, "lengths");
  request.mutable_packed()->mutable_lengths()->Truncate(1 << 20);
  EXPECT_TRUE(Call(&Stub::BuildPositions, request, &response).ok());
}

// 2^31 positions would take 16 GiB.
TEST_F(MemoryOfCallsTest, PackedPositionsOfATableStreamAreClaimed) {
  Start({.limits = {.max_request_bytes = 1 << 20, .in_flight_bytes = 8 << 20}});
  v1::BuildTableStreamRequest request;
  v1::RopeSpec* const spec =
      request.mutable_table()->mutable_rope()->mutable_spec();
  spec->set_pairing(v1::PAIRING_HALF_SPLIT);
  spec->set_rotary_dim(2);
  v1::PackedSequences* const packed =
      request.mutable_table()->mutable_positions()->mutable_packed();
  for (const std::int64_t end : {std::int64_t{0}, std::int64_t{1} << 31}) {
    packed->add_cu_seqlens(end);
  }
  grpc::ClientContext context;
  const auto stream = stub_->BuildTableStream(&context, request);
  v1::BuildTableStreamResponse response;
  EXPECT_FALSE(stream->Read(&response));
  const grpc::Status status = stream->Finish();
  EXPECT_EQ(status.error_code(), kExhausted) << status.error_message();
  ExpectNothingInFlight();
}

TEST_F(MemoryOfCallsTest, AMessageThatIsAdmittedTooLateIsNotRead) {
  Start({.limits = {.max_request_bytes = 1 << 20,
                    .in_flight_bytes = kLargeTableBytes + (32 << 10)}});
  const std::unique_ptr<RawCall> unread = HoldLargeTable();
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() +
                       std::chrono::seconds(2));
  context.AddMetadata("posenc-message-bytes", "1000000");
  v1::ResolveRopeResponse response;
  // The server ends the unread table after 1 s plus the time of 3 MiB at 8
  // MiB/s. Then less than half of the caller's time is left.
  const grpc::Status status =
      stub_->ResolveRope(&context, v1::ResolveRopeRequest(), &response);
  EXPECT_EQ(status.error_code(), kExhausted) << status.error_message();
  EXPECT_THAT(status.error_message(), HasSubstr("before the deadline"));
  ExpectNothingInFlight();
}

// No call would go on if calls kept their places while they wait for memory,
// and other calls kept memory while they wait for a place.
TEST_F(MemoryOfCallsTest, CallsThatWaitForMemoryHoldNoPlace) {
  Start({.limits = {.max_request_bytes = 64 << 20,
                    .in_flight_bytes = 64 << 20,
                    .threads = 1}});
  // One call has all of the memory, without a time limit; other calls wait.
  std::vector<std::unique_ptr<RawCall>> waiting;
  waiting.reserve(6);
  for (int i = 0; i < 6; ++i) {
    waiting.push_back(std::make_unique<RawCall>(
        channel_, "/posenc.v1.PositionalEncodingService/ApplyRope",
        std::map<std::string, std::string>{
            {"posenc-message-bytes", "67000000"}}));
  }
  EXPECT_TRUE(Eventually([this] {
    const ServerStatus status = server_->Status();
    return status.calls_waiting == 5 && status.calls_in_service == 0;
  }));
  waiting.clear();
  ExpectNothingInFlight();
}

// Messages that exceed their announced size take memory that no call claims.
TEST_F(MemoryOfCallsTest, MessagesOverTheBudgetAreEndedAndSmallCallsGoOn) {
  constexpr std::size_t kLarge = 16 << 20;
  Start({.limits = {.max_request_bytes = kLarge,
                    .max_response_bytes = 1 << 20,
                    .in_flight_bytes = 32 << 20}});
  const std::string message(kLarge, '\x12');
  std::atomic<bool> stop{false};
  std::vector<std::thread> senders;
  senders.reserve(12);
  for (int i = 0; i < 12; ++i) {
    senders.emplace_back([this, &message, &stop] {
      const auto channel = Connect(server_->addresses()[0]);
      while (!stop.load()) {
        RawCall call(channel, "/posenc.v1.PositionalEncodingService/ApplyRope",
                     {{"posenc-message-bytes", "10"}});
        call.WriteLast(message);
      }
    });
  }
  for (int i = 0; i < 50; ++i) {
    // On a busy machine a message may take 20 ms: it is refused, too, and sent
    // again.
    grpc::Status status;
    for (int attempt = 0; attempt < 5; ++attempt) {
      v1::GetServerInfoResponse info;
      status = Call(&Stub::GetServerInfo, v1::GetServerInfoRequest(), &info);
      if (status.error_code() != grpc::StatusCode::RESOURCE_EXHAUSTED) break;
    }
    EXPECT_TRUE(status.ok()) << status.error_message();
  }
  stop.store(true);
  for (std::thread& sender : senders) sender.join();
  ExpectNothingInFlight();
}

}  // namespace
}  // namespace posenc::server
