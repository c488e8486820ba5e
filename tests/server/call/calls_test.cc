// Behaviour of all RPCs, and errors that occur late in the results of streams.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "google/protobuf/descriptor.h"
#include "server/service/extra_service.h"
#include "tests/fixtures/http2.h"
#include "tests/fixtures/server_errors.h"

namespace posenc::server {
namespace {

using test::Eventually;
using testing::HasSubstr;
using testing::StartsWith;

class CallsTest : public ServerTest {
 protected:
  // Paths of all RPCs.
  static std::vector<std::string> Methods() {
    std::vector<std::string> methods;
    const auto* const service =
        google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(
            "posenc.v1.PositionalEncodingService");
    methods.reserve(service->method_count());
    for (int i = 0; i < service->method_count(); ++i) {
      methods.push_back(absl::StrCat("/posenc.v1.PositionalEncodingService/",
                                     std::string(service->method(i)->name())));
    }
    EXPECT_EQ(methods.size(), 15u);
    return methods;
  }

  // Makes a call without a deadline that never sends its message.
  grpc::Status SendNothing(const std::string& method) {
    grpc::ClientContext context;
    grpc::CompletionQueue queue;
    grpc::GenericStub stub(channel_);
    const auto call = stub.PrepareCall(&context, method, &queue);
    call->StartCall(nullptr);
    void* tag = nullptr;
    bool ok = false;
    queue.Next(&tag, &ok);
    grpc::Status status;
    call->Finish(&status, nullptr);
    queue.Next(&tag, &ok);
    queue.Shutdown();
    while (queue.Next(&tag, &ok)) {
    }
    return status;
  }

  static bool IsStream(const std::string& method) {
    return method.ends_with("Stream") || method.ends_with("BuildBias");
  }
};

TEST_F(CallsTest, AMalformedMessageIsAnInvalidArgumentOfEveryCall) {
  for (const std::string& method : Methods()) {
    for (const std::string& message :
         {std::string("\xff\xff\xff\xff\xff\xff"),  // a tag without end
          std::string("\x0A\x05"),                  // a length past the end
          std::string("\x72\xff\xff\xff\xff\x7f"),  // far past the end
          GoodApply().SerializeAsString().substr(0, 150),  // within a tensor
          std::string("\x0E"), std::string("\x00", 1)}) {  // no such types
      SCOPED_TRACE(method);
      std::string response;
      const grpc::Status status =
          RawUnary(channel_, method, message, &response);
      EXPECT_EQ(status.error_code(), kInvalid);
      EXPECT_EQ(status.error_message(),
                "the message is not a valid protobuf message of this call");
      const Details details = ReadDetails(status);
      EXPECT_EQ(details.reason, "ERROR_REASON_FIELD_INVALID");
      EXPECT_EQ(details.metadata.count("messageIndex"),
                IsStream(method) ? 1u : 0u);
    }
  }
}

// gRPC only accepts plain ASCII in metadata; any other byte would end the
// process.
TEST_F(CallsTest, AnErrorRepeatsWhateverItsCallerWrote) {
  std::vector<std::string> texts = {"\xC3\xA9",
                                    "\xE4\xB8\xAD\xE6\x96\x87",
                                    "\xF0\x9F\x98\x80",
                                    "%41",
                                    "%",
                                    " ",
                                    "~"};
  for (int c = 0; c < 0x80; ++c) {
    texts.emplace_back(1, static_cast<char>(c));
    texts.push_back("a" + texts.back() + "b");
  }
  for (const std::string& text : texts) {
    v1::BuildTableStreamRequest request;
    request.mutable_table()->mutable_rope()->set_preset(text);
    request.mutable_table()->mutable_positions()->set_start(0);
    request.mutable_table()->set_rows(1);
    v1::ResolveRopeRequest resolve;
    resolve.mutable_rope()->set_preset(text);
    grpc::ClientContext context;
    context.set_deadline(Deadline());
    v1::ResolveRopeResponse response;
    for (const grpc::Status& status :
         {StreamTable(request),
          stub_->ResolveRope(&context, resolve, &response)}) {
      EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND) << text;
      EXPECT_THAT(status.error_message(), HasSubstr("\"" + text + "\""));
      EXPECT_EQ(ReadDetails(status).metadata.at("preset"), text);
    }
  }
}

// The server reads the end of the requests while it sends the error.
TEST_F(CallsTest, AnErrorIsNotLostToTheEndOfTheRequests) {
  for (int i = 0; i < 400; ++i) {
    std::string response;
    ASSERT_EQ(
        RawUnary(channel_, "/posenc.v1.PositionalEncodingService/BuildBias",
                 "\x0A\x05", &response)
            .error_code(),
        kInvalid)
        << "call " << i;
  }
}

TEST_F(CallsTest, AFieldOfANewerClientIsRefusedByEveryCall) {
  for (const std::string& method : Methods()) {
    SCOPED_TRACE(method);
    std::string response;
    const grpc::Status status =
        RawUnary(channel_, method, "\xA0\x38\x01", &response);
    EXPECT_EQ(status.error_code(), kUnimplemented);
    const Details details = ReadDetails(status);
    EXPECT_EQ(details.reason, "ERROR_REASON_FIELD_UNKNOWN");
    EXPECT_EQ(details.metadata.at("fieldNumber"), "900");
    EXPECT_FALSE(details.has_bad_request);
    EXPECT_THAT(status.error_message(), HasSubstr("900"));
  }
}

TEST_F(CallsTest, AFullServerRefusesEveryCall) {
  // The table leaves less memory than the claim of a call without an
  // announcement.
  Start({.limits = {.max_request_bytes = 1 << 20,
                    .in_flight_bytes = kLargeTableBytes + (32 << 10),
                    .max_waiting = 0}});
  const std::unique_ptr<RawCall> unread = HoldLargeTable();
  const std::vector<std::string> methods = Methods();
  for (const std::string& method : methods) {
    SCOPED_TRACE(method);
    RawCall call(channel_, method);
    const grpc::Status status = call.Finish();
    EXPECT_EQ(status.error_code(), kExhausted);
    EXPECT_EQ(ReadDetails(status).reason, "ERROR_REASON_OVERLOADED");
  }
}

// More senders than the budget allows stop after their headers, with and
// without announcing.
TEST_F(CallsTest, StalledSendersDoNotStopOthers) {
  Start(
      {.connections = {.max_concurrent_streams = 200},
       .limits = {.max_request_bytes = 8 << 20, .in_flight_bytes = 64 << 20}});
  const std::shared_ptr<grpc::Channel> other = Connect(server_->addresses()[0]);
  std::vector<std::unique_ptr<RawCall>> stalled;
  for (int i = 0; i < 5; ++i) {
    for (const std::string& method : Methods()) {
      stalled.push_back(std::make_unique<RawCall>(other, method));
      stalled.push_back(
          std::make_unique<RawCall>(other, method,
                                    std::map<std::string, std::string>{
                                        {"posenc-message-bytes", "8000000"}}));
    }
  }
  for (int i = 0; i < 20; ++i) {
    v1::GetServerInfoResponse info;
    EXPECT_TRUE(
        Call(&Stub::GetServerInfo, v1::GetServerInfoRequest(), &info).ok());
    v1::BuildTableResponse table;
    const v1::BuildTableRequest request = LargeTable(4000);
    const grpc::Status status = Call(&Stub::BuildTable, request, &table);
    EXPECT_TRUE(status.ok()) << status.error_message();
  }
  stalled.clear();
  ExpectNothingInFlight();
}

// An answer so small that it is sent together with the status.
TEST_F(CallsTest, AnUnreadSmallAnswerEndsAtTheDeadline) {
  Start({.limits = {.default_deadline = absl::Milliseconds(50)}});
  grpc::ChannelArguments arguments;
  // The windows are smaller than the answer.
  arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 1024);
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  const std::shared_ptr<grpc::Channel> narrow = grpc::CreateCustomChannel(
      server_->addresses()[0], grpc::InsecureChannelCredentials(), arguments);
  const v1::BuildTableRequest request = LargeTable(64);  // 32 KiB
  grpc::ClientContext context;                           // without a deadline
  grpc::CompletionQueue queue;
  grpc::GenericStub stub(narrow);
  const auto call = stub.PrepareCall(
      &context, "/posenc.v1.PositionalEncodingService/BuildTable", &queue);
  void* tag = nullptr;
  bool ok = false;
  call->StartCall(nullptr);
  queue.Next(&tag, &ok);
  const grpc::Slice slice(request.SerializeAsString());
  call->WriteLast(grpc::ByteBuffer(&slice, 1), {}, nullptr);
  queue.Next(&tag, &ok);
  ExpectNothingInFlight();
  context.TryCancel();
  queue.Shutdown();
  while (queue.Next(&tag, &ok)) {
  }
}

TEST_F(CallsTest, EveryCallWithoutADeadlineGetsTheServersOwn) {
  Start({.limits = {.default_deadline = absl::Milliseconds(20)}});
  for (const std::string& method : Methods()) {
    SCOPED_TRACE(method);
    EXPECT_EQ(SendNothing(method).error_code(),
              grpc::StatusCode::DEADLINE_EXCEEDED);
  }
  ExpectNothingInFlight();
}

// The status waits behind a large response, because its client does not read.
TEST_F(CallsTest, AStatusThatTellsOfTheDeadlineIsSentAfterIt) {
  const std::string service = "/posenc.v1.PositionalEncodingService/";
  Start({.limits = {.default_deadline = absl::Milliseconds(50)}});
  http2::Socket socket(server_->addresses()[0]);
  // The first call has its own deadline, in grpc-timeout.
  socket.Send(http2::kOpenWindows +
              http2::CallHeaders(service + "BuildTable", 1,
                                 http2::Header("grpc-timeout", "1M")) +
              http2::LastMessage(1, LargeTable(1 << 15).SerializeAsString()));
  EXPECT_TRUE(Eventually(
      [this] { return server_->Status().claimed_bytes >= 16 << 20; }));
  socket.Send(http2::CallHeaders(service + "ApplyRope", 3));
  EXPECT_TRUE(
      Eventually([this] { return server_->Status().calls_in_progress == 2; }));
  // This call's deadline is later.
  SendNothing(service + "ApplyRope");
  std::string frame;
  do {
    frame = socket.ReadFrame();
  } while (!frame.empty() && (frame[8] != 3 || frame[3] == 8));
  EXPECT_THAT(frame, HasSubstr("the client set no deadline"));
}

// Protobuf merges a field that comes in parts.
TEST_F(CallsTest, EqualEncodingsAreCachedOnceHoweverTheyAreWritten) {
  v1::ApplyRopeRequest request, profile;
  request.mutable_rope()->set_preset("llama-3.1-8b");
  request.set_layout(v1::LAYOUT_BSHD);
  request.mutable_positions()->set_start(7);
  SetTensor(v1::DTYPE_FLOAT32, {1, 1, 1, 128}, std::vector<float>(128, 1.5f),
            request.mutable_q());
  profile.mutable_rope()->set_profile(v1::PROFILE_VLLM);
  v1::ApplyRopeRequest whole = request;
  whole.MergeFrom(profile);
  const std::string one = whole.SerializeAsString();
  const std::string parts =
      request.SerializeAsString() + profile.SerializeAsString();
  const std::string turned =
      profile.SerializeAsString() + request.SerializeAsString();
  std::string first;
  for (const auto& [bytes, hits, misses] :
       {std::tuple{one, 0, 1}, {one, 1, 1}, {parts, 2, 1}, {turned, 3, 1}}) {
    std::string response;
    EXPECT_TRUE(RawUnary(channel_,
                         "/posenc.v1.PositionalEncodingService/ApplyRope",
                         bytes, &response)
                    .ok());
    if (first.empty()) first = response;
    EXPECT_EQ(response, first);
    const ServerStatus status = server_->Status();
    EXPECT_EQ(status.cache_hits, hits);
    EXPECT_EQ(status.cache_misses, misses);
  }
}

// Has one RPC, /test.Own/Ask.
class OwnService final : public ExtraService {
 public:
  using Start = decltype(Method::start);

  explicit OwnService(Start start) : start_(std::move(start)) {}

  std::vector<Method> Methods() override {
    Method method;
    method.service = "test.Own";
    method.name = "Ask";
    method.start = start_;
    return {method};
  }
  void SetReady(bool /*ready*/) override {}

  static ServerOptions Served(const Start& start) {
    return {.extra_service = {
                v1::GetServerInfoRequest::descriptor()->file()->service(0),
                [start](SharedFiles*) {
                  return std::make_unique<OwnService>(start);
                }}};
  }

 private:
  const Start start_;
};

TEST_F(CallsTest, ACallWithoutMemoryIsRefusedAndOthersGoOn) {
  Start(OwnService::Served(
      [](const MethodContext&) -> absl::StatusOr<std::unique_ptr<CallHandler>> {
        throw std::bad_alloc();
      }));
  std::string response;
  const grpc::Status status =
      RawUnary(channel_, "/test.Own/Ask", "", &response);
  EXPECT_EQ(status.error_code(), kExhausted);
  EXPECT_THAT(status.error_message(), StartsWith("out of memory"));
  v1::GetServerInfoResponse info;
  EXPECT_TRUE(
      Call(&Stub::GetServerInfo, v1::GetServerInfoRequest(), &info).ok());
  ExpectNothingInFlight();
}

// Records the server's reports of its calls.
class Observer final : public CallObserver {
 public:
  void Started(absl::string_view method) override {
    if (method == no_memory_for) throw std::bad_alloc();
    absl::SleepFor(delay);
  }
  void Finished(const CallRecord& record) override {
    at_end();
    code.store(record.code);
  }

  std::string no_memory_for = "no method";
  absl::Duration delay;  // Started() keeps the loop busy for this time
  std::function<void()> at_end = [] {};  // Finished() calls it
  std::atomic<int> code{-1};             // the last finished call's code
};

TEST_F(CallsTest, ACallWithoutMemoryForItsStateIsRefusedAndOthersGoOn) {
  Observer observer;
  observer.no_memory_for = "ResolveRope";
  Start({.observers = {&observer}});
  v1::ResolveRopeResponse response;
  const grpc::Status status =
      Call(&Stub::ResolveRope, v1::ResolveRopeRequest(), &response);
  EXPECT_EQ(status.error_code(), kExhausted);
  EXPECT_THAT(status.error_message(), StartsWith("out of memory"));
  v1::GetServerInfoResponse info;
  EXPECT_TRUE(
      Call(&Stub::GetServerInfo, v1::GetServerInfoRequest(), &info).ok());
  server_.reset();
}

TEST_F(CallsTest, AClientThatGoesBeforeItsFirstMessageIsRecordedAsCancelled) {
  for (const std::string& method : Methods()) {
    SCOPED_TRACE(method);
    Observer observer;
    Start({.observers = {&observer}});
    {
      const RawCall call(channel_, method);
      ASSERT_TRUE(Eventually(
          [this] { return server_->Status().calls_in_progress == 1; }));
    }
    EXPECT_TRUE(Eventually([&observer] { return observer.code.load() >= 0; }));
    EXPECT_EQ(observer.code.load(), grpc::StatusCode::CANCELLED);
    ExpectNothingInFlight();
    server_.reset();
  }
}

// Refuses its message.
class Refusal final : public CallHandler {
 public:
  explicit Refusal(std::atomic<bool>* gone) : gone_(gone) {}
  ~Refusal() override { gone_->store(true); }

  absl::Status Receive(RequestMessage /*message*/) override {
    return absl::InvalidArgumentError("refused");
  }
  absl::StatusOr<std::unique_ptr<PendingResponse>> Next(
      StopCheck /*stop*/) override {
    return nullptr;
  }

 private:
  std::atomic<bool>* const gone_;
};

// The call's memory is no longer claimed when the status is sent.
TEST_F(CallsTest, ACallKeepsNoMessageUntilItsStatusIsRead) {
  std::atomic<bool> gone{false};
  std::atomic<bool> gone_first{false};
  Observer observer;
  observer.at_end = [&] { gone_first.store(gone.load()); };
  ServerOptions options = OwnService::Served([&gone](const MethodContext&) {
    return std::make_unique<Refusal>(&gone);
  });
  options.observers = {&observer};
  Start(options);
  std::string response;
  EXPECT_EQ(RawUnary(channel_, "/test.Own/Ask", "", &response).error_code(),
            kInvalid);
  EXPECT_TRUE(Eventually([&observer] { return observer.code.load() >= 0; }));
  EXPECT_TRUE(gone_first.load());
  server_.reset();
}

// The first call arrives after its deadline. No other call waits, so the server
// must not refuse it because too many calls wait.
TEST_F(CallsTest, ACallPastItsClientsDeadlineIsRecordedAsSuch) {
  for (const char* timeout : {"1n", "60m"}) {
    SCOPED_TRACE(timeout);
    Observer observer;
    observer.delay = absl::Milliseconds(5);
    Start({.observers = {&observer}});
    http2::Socket socket(server_->addresses()[0]);
    socket.Send(
        http2::kPreface + http2::kSettings +
        http2::CallHeaders("/posenc.v1.PositionalEncodingService/ApplyRope", 1,
                           http2::Header("grpc-timeout", timeout)));
    EXPECT_TRUE(Eventually([&observer] { return observer.code.load() >= 0; }));
    EXPECT_EQ(observer.code.load(), grpc::StatusCode::DEADLINE_EXCEEDED);
    server_.reset();
  }
}

TEST_F(CallsTest, ARefusedCallDoesNotCountAsOneInProgress) {
  Observer observer;
  std::atomic<Server*> server{nullptr};
  std::atomic<std::int64_t> in_progress{-1};
  observer.at_end = [&server, &in_progress] {
    Server* const started = server.load();
    if (started != nullptr) {
      in_progress.store(started->Status().calls_in_progress);
    }
  };
  Start({.observers = {&observer}});
  server.store(server_.get());
  std::string response;
  EXPECT_EQ(RawUnary(channel_, "/none/Such", "", &response).error_code(),
            kUnimplemented);
  EXPECT_TRUE(Eventually([&observer] { return observer.code.load() >= 0; }));
  EXPECT_EQ(in_progress.load(), 0);
  server_.reset();
}

// Returns an analysis of 2^31 cosines, which takes many seconds.
std::string LongAnalysis() {
  v1::AnalyzeRopeRequest request;
  v1::RopeSpec* const spec = request.mutable_rope()->mutable_spec();
  spec->set_pairing(v1::PAIRING_HALF_SPLIT);
  spec->set_rotary_dim(65536);
  request.set_max_distance(65535);
  return request.SerializeAsString();
}

TEST_F(CallsTest, ASlowMessageLosesItsPlaceAndIsComputedInAnother) {
  const auto at_work = [this](std::int64_t calls) {
    return Eventually(
        [this, calls] { return server_->Status().calls_in_service == calls; });
  };
  RawCall call(channel_, "/posenc.v1.PositionalEncodingService/AnalyzeRope");
  EXPECT_TRUE(at_work(1));
  EXPECT_TRUE(at_work(0)) << "its message has not come";
  call.WriteLast(LongAnalysis());
  EXPECT_TRUE(at_work(1)) << "it is computed";
}

TEST_F(CallsTest, ASmallAnswerKeepsToTheLimitToo) {
  Start({.limits = {.max_response_bytes = 64}});
  v1::GetServerInfoResponse info;
  const grpc::Status status =
      Call(&Stub::GetServerInfo, v1::GetServerInfoRequest(), &info);
  EXPECT_EQ(status.error_code(), kExhausted);
  const Details details = ReadDetails(status);
  EXPECT_EQ(details.reason, "ERROR_REASON_MESSAGE_TOO_LARGE");
  EXPECT_EQ(details.metadata.at("limitBytes"), "64");

  // Each id takes 4 bytes, and the rest of the response takes 13 bytes.
  v1::BuildPositionsRequest ids;
  ids.mutable_attention_sinks()->set_sinks(64);
  ids.mutable_attention_sinks()->set_length(12);
  v1::BuildPositionsResponse response;
  EXPECT_TRUE(Call(&Stub::BuildPositions, ids, &response).ok());
  EXPECT_LE(response.ByteSizeLong(), 64u);
  ids.mutable_attention_sinks()->set_length(13);
  EXPECT_EQ(Call(&Stub::BuildPositions, ids, &response).error_code(),
            kExhausted);
}

TEST_F(CallsTest, AnAnalysisEndsWhenItsCallerGoes) {
  {
    RawCall call(channel_, "/posenc.v1.PositionalEncodingService/AnalyzeRope");
    call.WriteLast(LongAnalysis());
    ASSERT_TRUE(
        Eventually([this] { return server_->Status().claimed_bytes > 0; }));
  }
  ExpectNothingInFlight();
}

TEST_F(CallsTest, AWeightOfManySlicesIsConvertedBitForBit) {
  constexpr std::int64_t kHeads = 16, kDim = 128, kColumns = 300;
  std::vector<std::int32_t> bits(kHeads * kDim * kColumns);
  for (std::size_t i = 0; i < bits.size(); ++i) {
    bits[i] = static_cast<std::int32_t>(i * 2654435761u);
  }
  v1::ConvertPairingRequest request;
  request.set_old_pairing(v1::PAIRING_INTERLEAVED);
  request.set_new_pairing(v1::PAIRING_HALF_SPLIT);
  request.set_heads(kHeads);
  SetTensor(v1::DTYPE_FLOAT32, {kHeads * kDim, kColumns}, bits,
            request.mutable_weight());
  v1::ConvertPairingResponse response;
  const grpc::Status status = Call(&Stub::ConvertPairing, request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  const auto converted = Elements<std::int32_t>(response.weight());
  ASSERT_EQ(converted.size(), bits.size());
  for (std::int64_t row = 0; row < kHeads * kDim; ++row) {
    const std::int64_t i = row % kDim;
    const std::int64_t from =
        row - i + (i < kDim / 2 ? 2 * i : 2 * (i - kDim / 2) + 1);
    for (std::int64_t c = 0; c < kColumns; ++c) {
      ASSERT_EQ(converted[row * kColumns + c], bits[from * kColumns + c])
          << row << ", " << c;
    }
  }
}

}  // namespace
}  // namespace posenc::server
