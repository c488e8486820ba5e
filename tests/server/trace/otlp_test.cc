// Spans sent to a collector, which is a test server.

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <mutex>
#include <string>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "server/trace/traces.h"

namespace posenc::server {
namespace {

using testing::HasSubstr;

constexpr char kSampled[] =
    "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
constexpr char kNotSampled[] =
    "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";
// The ids of kSampled, as bytes.
const std::string kTraceId(
    "\x4b\xf9\x2f\x35\x77\xb3\x4d\xa6\xa3\xce\x92\x9d\x0e\x0e\x47\x36");
const std::string kParentId("\x00\xf0\x67\xaa\x0b\xa9\x02\xb7", 8);

// Accepts any RPC, and records its name and the bytes of its request.
class Collector final : public grpc::CallbackGenericService {
 public:
  Collector() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                             &port_);
    builder.RegisterCallbackGenericService(this);
    server_ = builder.BuildAndStart();
  }
  ~Collector() override { server_->Shutdown(); }

  std::string endpoint() const {
    return "http://127.0.0.1:" + std::to_string(port_);
  }
  // Returns all received bytes.
  std::string Received() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return received_;
  }

 private:
  class Reactor final : public grpc::ServerGenericBidiReactor {
   public:
    Reactor(Collector* collector, const std::string& method)
        : collector_(collector) {
      collector_->Add(method);
      StartRead(&message_);
    }
    void OnReadDone(bool ok) override {
      grpc::Slice slice;
      if (ok && message_.DumpToSingleSlice(&slice).ok()) {
        collector_->Add(std::string(slice.begin(), slice.end()));
      }
      // Empty bytes are a valid answer of every message type.
      grpc::Slice empty;
      answer_ = grpc::ByteBuffer(&empty, 1);
      StartWriteAndFinish(&answer_, grpc::WriteOptions(), grpc::Status::OK);
    }
    void OnDone() override { delete this; }

   private:
    Collector* const collector_;
    grpc::ByteBuffer message_, answer_;
  };

  void Add(const std::string& text) {
    const std::lock_guard<std::mutex> lock(mutex_);
    received_ += text;
  }
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    return new Reactor(this, context->method());
  }

  std::mutex mutex_;
  std::string received_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

CallRecord Record(const char* traceparent) {
  CallRecord record;
  record.service = "posenc.v1.PositionalEncodingService";
  record.method = "ApplyRope";
  record.traceparent = traceparent;
  record.started = absl::Now();
  record.handling = absl::Milliseconds(3);
  record.code = grpc::StatusCode::RESOURCE_EXHAUSTED;
  record.reason = "ERROR_REASON_OVERLOADED";
  record.message = "the status's message";
  return record;
}

TEST(OtlpTraces, SendsTheSpanOfASampledCall) {
  Collector collector;
  auto traces = StartTraces(collector.endpoint());
  ASSERT_TRUE(traces.ok()) << traces.status();
  (*traces)->Started("ApplyRope");
  (*traces)->Finished(Record(kSampled));
  traces->reset();  // sends the spans that are left
  const std::string received = collector.Received();
  EXPECT_THAT(
      received,
      HasSubstr("/opentelemetry.proto.collector.trace.v1.TraceService/Export"));
  EXPECT_THAT(received, HasSubstr(kTraceId));
  EXPECT_THAT(received, HasSubstr(kParentId));
  EXPECT_THAT(received,
              HasSubstr("posenc.v1.PositionalEncodingService/ApplyRope"));
  EXPECT_THAT(received, HasSubstr("ERROR_REASON_OVERLOADED"));
}

TEST(OtlpTraces, UnsampledCallsHaveNoSpan) {
  Collector collector;
  auto traces = StartTraces(collector.endpoint());
  ASSERT_TRUE(traces.ok()) << traces.status();
  for (const char* traceparent : {"", "nonsense", kNotSampled}) {
    (*traces)->Finished(Record(traceparent));
  }
  traces->reset();
  EXPECT_EQ(collector.Received(), "");
}

TEST(OtlpTraces, ADeadCollectorLosesOnlySpans) {
  std::string endpoint;
  {
    const Collector gone;
    endpoint = gone.endpoint();
  }
  auto traces = StartTraces(endpoint);
  ASSERT_TRUE(traces.ok()) << traces.status();
  // These are more spans than the queue holds.
  for (int i = 0; i < 10000; ++i) (*traces)->Finished(Record(kSampled));
  traces->reset();
}

TEST(OtlpTraces, ACollectorThatNeverAnswersIsLeftInTheEnd) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in name = {};
  name.sin_family = AF_INET;
  name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(name);
  ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&name), size), 0);
  ASSERT_EQ(listen(listener, 8), 0);
  getsockname(listener, reinterpret_cast<sockaddr*>(&name), &size);
  auto traces =
      StartTraces("http://127.0.0.1:" + std::to_string(ntohs(name.sin_port)));
  ASSERT_TRUE(traces.ok()) << traces.status();
  for (int i = 0; i < 10000; ++i) (*traces)->Finished(Record(kSampled));
  traces->reset();
  close(listener);
}

TEST(OtlpTraces, RefusesInvalidEndpoints) {
  for (const char* endpoint : {"", "collector:4317", "ftp://collector"}) {
    const auto traces = StartTraces(endpoint);
    EXPECT_EQ(traces.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(traces.status().message()),
                HasSubstr("--otlp-endpoint: "));
  }
}

}  // namespace
}  // namespace posenc::server
