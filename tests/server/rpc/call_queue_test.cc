// The queue alone, with a service of the test's: what it tells of a call, and
// when it may stop.

#include "server/rpc/call_queue.h"

#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/server.h"
#include "gtest/gtest.h"

namespace posenc::server {
namespace {

constexpr absl::Duration kLong = absl::Seconds(30);

// Remembers what it is told.
class Watching final : public PeerStream::Reactor {
 public:
  void OnReadDone(bool ok) override {
    read_ok = ok;
    read.Notify();
  }
  void OnCancel() override { cancelled.Notify(); }
  void OnDone() override { done.Notify(); }

  absl::Notification read, cancelled, done;
  bool read_ok = false;
  grpc::ByteBuffer message;
};

// Gives every call to one reactor, or refuses it.
class OneReactor final : public CallQueue::Service {
 public:
  void Begin(PeerStream* begun) override {
    stream = begun;
    if (refuse) {
      begun->Finish(grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "no"));
    } else {
      begun->SetReactor(&reactor);
    }
    arrived.Notify();
  }

  bool refuse = false;
  Watching reactor;
  PeerStream* stream = nullptr;
  absl::Notification arrived;
};

class CallQueueTest : public testing::Test {
 protected:
  CallQueueTest() {
    grpc::ServerBuilder builder;
    queue_.AddTo(&builder);
    server_ = builder.BuildAndStart();
    queue_.Start(2);
  }
  ~CallQueueTest() override {
    server_->Shutdown(std::chrono::system_clock::now());
    server_->Wait();
    queue_.Stop();
  }

  // A call that has sent its headers, and `message` if there is one.
  struct ClientCall {
    ~ClientCall() {
      queue.Shutdown();
      void* tag = nullptr;
      bool ok = false;
      while (queue.Next(&tag, &ok)) {
      }
    }
    grpc::ClientContext context;
    grpc::CompletionQueue queue;
    std::unique_ptr<grpc::ClientAsyncResponseReader<grpc::ByteBuffer>> reader;
    grpc::ByteBuffer response;
    grpc::Status status;
  };
  std::unique_ptr<ClientCall> Begin() {
    auto call = std::make_unique<ClientCall>();
    const grpc::Slice slice("hello");
    call->reader =
        grpc::GenericStub(server_->InProcessChannel({}))
            .PrepareUnaryCall(&call->context, "/a.Service/Method",
                              grpc::ByteBuffer(&slice, 1), &call->queue);
    call->reader->StartCall();
    call->reader->Finish(&call->response, &call->status, nullptr);
    return call;
  }
  static grpc::Status Await(ClientCall* call) {
    void* tag = nullptr;
    bool ok = false;
    const auto deadline =
        std::chrono::system_clock::now() + absl::ToChronoSeconds(kLong);
    if (call->queue.AsyncNext(&tag, &ok, deadline) !=
        grpc::CompletionQueue::GOT_EVENT) {
      return grpc::Status(grpc::StatusCode::UNKNOWN, "no answer");
    }
    return call->status;
  }

  OneReactor service_;
  CallQueue queue_{&service_};
  std::unique_ptr<grpc::Server> server_;
};

TEST_F(CallQueueTest, AReactorReadsAndAnswers) {
  const auto call = Begin();
  ASSERT_TRUE(service_.arrived.WaitForNotificationWithTimeout(kLong));
  Watching& reactor = service_.reactor;
  service_.stream->StartRead(&reactor.message);
  ASSERT_TRUE(reactor.read.WaitForNotificationWithTimeout(kLong));
  EXPECT_TRUE(reactor.read_ok);
  EXPECT_EQ(service_.stream->context().method(), "/a.Service/Method");
  service_.stream->StartWriteAndFinish(&reactor.message, grpc::Status::OK);
  EXPECT_TRUE(Await(call.get()).ok());
  EXPECT_EQ(call->response.Length(), 5);
  ASSERT_TRUE(reactor.done.WaitForNotificationWithTimeout(kLong));
  EXPECT_FALSE(reactor.cancelled.HasBeenNotified());
}

TEST_F(CallQueueTest, ARefusedCallNeedsNoReactor) {
  service_.refuse = true;
  const auto call = Begin();
  EXPECT_EQ(Await(call.get()).error_message(), "no");
}

TEST_F(CallQueueTest, ACallThatTheClientGivesUpIsCancelledOnce) {
  const auto call = Begin();
  ASSERT_TRUE(service_.arrived.WaitForNotificationWithTimeout(kLong));
  call->context.TryCancel();
  Watching& reactor = service_.reactor;
  // A second notification would end the test.
  ASSERT_TRUE(reactor.cancelled.WaitForNotificationWithTimeout(kLong));
  EXPECT_FALSE(reactor.done.HasBeenNotified());
  service_.stream->Finish(grpc::Status::CANCELLED);
  EXPECT_TRUE(reactor.done.WaitForNotificationWithTimeout(kLong));
}

TEST_F(CallQueueTest, StopWaitsForACallThatIsStillBeingAnswered) {
  const auto call = Begin();
  ASSERT_TRUE(service_.arrived.WaitForNotificationWithTimeout(kLong));
  server_->Shutdown(std::chrono::system_clock::now());
  Watching& reactor = service_.reactor;
  ASSERT_TRUE(reactor.cancelled.WaitForNotificationWithTimeout(kLong));
  bool done_first = false;
  std::thread stop([&] {
    server_->Wait();
    queue_.Stop();
    done_first = reactor.done.HasBeenNotified();
  });
  service_.stream->Finish(grpc::Status::CANCELLED);
  stop.join();
  EXPECT_TRUE(done_first);
}

TEST(UnstartedCallQueueTest, Stops) {
  OneReactor service;
  CallQueue unused(&service);
  unused.Stop();
  grpc::ServerBuilder builder;
  CallQueue added(&service);
  added.AddTo(&builder);
  added.Stop();
  added.Stop();
}

}  // namespace
}  // namespace posenc::server
