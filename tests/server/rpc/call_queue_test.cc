// The queue alone, with a service of the test's: what it tells of a call, and
// when it may stop.

#include "server/rpc/call_queue.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/server.h"
#include "gtest/gtest.h"
#include "tests/fixtures/eventually.h"

namespace posenc::server {
namespace {

constexpr std::chrono::seconds kLong{30};

// Something that happens once: a second time throws, and ends the test.
class Once {
 public:
  void Happen() { promise_.set_value(); }
  bool HasHappened() const { return Within(std::chrono::seconds(0)); }
  bool Within(std::chrono::seconds time) const {
    return future_.wait_for(time) == std::future_status::ready;
  }

 private:
  std::promise<void> promise_;
  std::future<void> future_ = promise_.get_future();
};

// Remembers what it is told.
class Watching final : public PeerStream::Reactor {
 public:
  void OnReadDone(bool ok) override {
    read_ok = ok;
    read.Happen();
  }
  void OnCancel() override { cancelled.Happen(); }
  void OnDone() override { done.Happen(); }

  Once read, cancelled, done;
  bool read_ok = false;
};

// Gives every call to one reactor, or refuses it.
class OneReactor final : public CallQueue::Service {
 public:
  void Begin(PeerStream* begun) override {
    if (first) std::exchange(first, nullptr)();
    stream = begun;
    if (refuse) {
      begun->Finish(
          {{grpc::StatusCode::RESOURCE_EXHAUSTED, "no", "why"}, true});
    } else {
      begun->SetReactor(&reactor);
      if (watch) begun->Watch();
    }
    arrived.Happen();
  }
  void Gone(const PeerStream& /*stream*/) override { gone.Happen(); }
  void Refused(std::chrono::nanoseconds spent) override {
    refusing += spent.count();
  }

  // What the first call finds.
  std::function<void()> first;
  bool refuse = false, watch = true;
  Watching reactor;
  PeerStream* stream = nullptr;
  Once arrived, gone;
  std::atomic<std::int64_t> refusing{0};  // nanoseconds
};

// With as many threads as the parameter says. Operations are started by the
// test's own thread; a queue of one thread hands them over.
class CallQueueTest : public testing::TestWithParam<int> {
 protected:
  CallQueueTest() {
    grpc::ServerBuilder builder;
    queue_.AddTo(&builder);
    server_ = builder.BuildAndStart();
    queue_.Start(server_.get(), GetParam());
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
    const auto deadline = std::chrono::system_clock::now() + kLong;
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

TEST_P(CallQueueTest, AReactorReadsAndAnswers) {
  const auto call = Begin();
  ASSERT_TRUE(service_.arrived.Within(kLong));
  Watching& reactor = service_.reactor;
  service_.stream->StartRead();
  ASSERT_TRUE(reactor.read.Within(kLong));
  EXPECT_TRUE(reactor.read_ok);
  EXPECT_EQ(service_.stream->headers().method(), "/a.Service/Method");
  EXPECT_EQ(service_.stream->message_bytes(), 5);
  const std::vector<grpc::Slice> message = service_.stream->TakeMessage();
  ASSERT_EQ(message.size(), 1);
  service_.stream->StartWriteAndFinish({message.data(), 1});
  EXPECT_TRUE(Await(call.get()).ok());
  EXPECT_EQ(call->response.Length(), 5);
  ASSERT_TRUE(reactor.done.Within(kLong));
  EXPECT_FALSE(reactor.cancelled.HasHappened());
}

TEST_P(CallQueueTest, AReactorThatDoesNotWatchReadsAndAnswers) {
  service_.watch = false;
  const auto call = Begin();
  ASSERT_TRUE(service_.arrived.Within(kLong));
  Watching& reactor = service_.reactor;
  service_.stream->StartRead();
  ASSERT_TRUE(reactor.read.Within(kLong));
  EXPECT_TRUE(reactor.read_ok);
  const std::vector<grpc::Slice> message = service_.stream->TakeMessage();
  ASSERT_EQ(message.size(), 1);
  service_.stream->StartWriteAndFinish({message.data(), 1});
  EXPECT_TRUE(Await(call.get()).ok());
  ASSERT_TRUE(reactor.done.Within(kLong));
  EXPECT_FALSE(reactor.cancelled.HasHappened());
}

TEST_P(CallQueueTest, AReactorThatDoesNotWatchIsToldAtTheEndOfAGoneClient) {
  service_.watch = false;
  const auto call = Begin();
  ASSERT_TRUE(service_.arrived.Within(kLong));
  Watching& reactor = service_.reactor;
  service_.stream->StartRead();
  ASSERT_TRUE(reactor.read.Within(kLong));
  call->context.TryCancel();
  EXPECT_EQ(Await(call.get()).error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_FALSE(reactor.cancelled.HasHappened());
  const grpc::Slice answer("hello");
  service_.stream->StartWriteAndFinish({&answer, 1});
  ASSERT_TRUE(reactor.done.Within(kLong));
  EXPECT_TRUE(reactor.cancelled.HasHappened());
}

TEST_P(CallQueueTest, AReactorThatBeginsToWatchLateIsToldThatTheClientIsGone) {
  service_.watch = false;
  const auto call = Begin();
  ASSERT_TRUE(service_.arrived.Within(kLong));
  Watching& reactor = service_.reactor;
  service_.stream->StartRead();
  ASSERT_TRUE(reactor.read.Within(kLong));
  service_.stream->Watch();
  service_.stream->Watch();
  call->context.TryCancel();
  ASSERT_TRUE(reactor.cancelled.Within(kLong));
  service_.stream->Finish({grpc::Status::CANCELLED, false});
  EXPECT_TRUE(reactor.done.Within(kLong));
}

TEST_P(CallQueueTest, ARefusedCallNeedsNoReactor) {
  service_.refuse = true;
  const auto call = Begin();
  const grpc::Status status = Await(call.get());
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(status.error_message(), "no");
  EXPECT_EQ(status.error_details(), "why");
  EXPECT_TRUE(test::Eventually([this] { return service_.refusing > 0; }));
  const auto& trailers = call->context.GetServerTrailingMetadata();
  const auto pushback = trailers.find("grpc-retry-pushback-ms");
  ASSERT_NE(pushback, trailers.end());
  EXPECT_EQ(pushback->second, "1000");
}

TEST_P(CallQueueTest, ACallThatTheClientGivesUpIsCancelledOnce) {
  const auto call = Begin();
  ASSERT_TRUE(service_.arrived.Within(kLong));
  call->context.TryCancel();
  Watching& reactor = service_.reactor;
  ASSERT_TRUE(reactor.cancelled.Within(kLong));
  EXPECT_FALSE(reactor.done.HasHappened());
  service_.stream->Finish({grpc::Status::CANCELLED, false});
  EXPECT_TRUE(reactor.done.Within(kLong));
}

TEST_P(CallQueueTest, StopWaitsForACallThatIsStillBeingAnswered) {
  const auto call = Begin();
  ASSERT_TRUE(service_.arrived.Within(kLong));
  server_->Shutdown(std::chrono::system_clock::now());
  Watching& reactor = service_.reactor;
  ASSERT_TRUE(reactor.cancelled.Within(kLong));
  bool done_first = false;
  std::thread stop([&] {
    server_->Wait();
    queue_.Stop();
    done_first = reactor.done.HasHappened();
  });
  service_.stream->Finish({grpc::Status::CANCELLED, false});
  stop.join();
  EXPECT_TRUE(done_first);
}

INSTANTIATE_TEST_SUITE_P(Threads, CallQueueTest, testing::Values(1, 2),
                         testing::PrintToStringParamName());

class OneThreadQueueTest : public CallQueueTest {};

TEST_P(OneThreadQueueTest, OnceItIsBehindACallWhosePeerIsGoneIsNotBegun) {
  service_.refuse = true;
  std::unique_ptr<ClientCall> second;
  service_.first = [this, &second] {
    second = Begin();
    second->context.TryCancel();
    const auto behind =
        std::chrono::steady_clock::now() + std::chrono::milliseconds(20);
    while (std::chrono::steady_clock::now() < behind) {
    }
  };
  const auto call = Begin();
  EXPECT_EQ(Await(call.get()).error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_TRUE(service_.gone.Within(kLong));
}

INSTANTIATE_TEST_SUITE_P(Threads, OneThreadQueueTest, testing::Values(1),
                         testing::PrintToStringParamName());

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
