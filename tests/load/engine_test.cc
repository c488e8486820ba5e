// The engine against a test server, with a clock that only the test moves.

#include "client/tools/load/engine.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <vector>

#include "client/tools/load/arrivals.h"
#include "gmock/gmock.h"
#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "gtest/gtest.h"
#include "tests/fixtures/client.h"

namespace posenc::load {
namespace {

constexpr std::int64_t kMilli = 1'000'000;
constexpr std::int64_t kStart = 1'000'000 * kMilli;

class FakeClock : public Clock {
 public:
  std::int64_t Now() const override { return now_; }
  void SleepUntil(std::int64_t nanos) override { AdvanceTo(nanos + late_); }
  void set_late(std::int64_t nanos) { late_ = nanos; }
  void AdvanceTo(std::int64_t nanos) {
    std::int64_t now = now_;
    while (now < nanos && !now_.compare_exchange_weak(now, nanos)) {
    }
  }

 private:
  std::atomic<std::int64_t> now_{kStart};
  std::int64_t late_ = 0;  // sleeps end this late
};

// Answers call number n of any method with answer(n).
class StubServer : public grpc::CallbackGenericService {
 public:
  struct Answer {
    grpc::Status status;
    std::string bytes = "answer";
  };
  using Answerer = std::function<Answer(int call)>;

  // Holds the first answers until `together` calls have come.
  explicit StubServer(Answerer answer, int together = 1)
      : answer_(std::move(answer)), together_(together) {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                             &port);
    builder.RegisterCallbackGenericService(this);
    server_ = builder.BuildAndStart();
    address_ = "127.0.0.1:" + std::to_string(port);
  }
  ~StubServer() override { server_->Shutdown(); }

  const std::string& address() const { return address_; }
  int calls() const { return calls_; }
  // `on_deadline` gets the seconds that a call has left, once for each call.
  void set_on_deadline(std::function<void(double)> on_deadline) {
    on_deadline_ = std::move(on_deadline);
  }
  std::vector<std::string> announced() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return announced_;
  }

  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    // Clients treat a server without a health service as healthy.
    if (context->method().rfind("/grpc.health.", 0) == 0) return new Unknown;
    if (on_deadline_) {
      on_deadline_(std::chrono::duration<double>(
                       context->deadline() - std::chrono::system_clock::now())
                       .count());
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    announced_.push_back(MetadataOf(*context, "posenc-message-bytes"));
    return new Reactor(this);
  }

 private:
  class Reactor : public grpc::ServerGenericBidiReactor {
   public:
    explicit Reactor(StubServer* server) : server_(server) {
      StartRead(&request_);
    }
    void OnReadDone(bool ok) override {
      if (!ok) return Finish(grpc::Status::CANCELLED);
      server_->Arrived(this);
    }
    void Reply() {
      const Answer answer = server_->answer_(server_->calls_++);
      if (!answer.status.ok()) return Finish(answer.status);
      const grpc::Slice slice(answer.bytes);
      response_ = grpc::ByteBuffer(&slice, 1);
      StartWriteAndFinish(&response_, {}, grpc::Status::OK);
    }
    void OnDone() override { delete this; }

   private:
    StubServer* const server_;
    grpc::ByteBuffer request_, response_;
  };

  class Unknown : public grpc::ServerGenericBidiReactor {
   public:
    Unknown() { Finish({grpc::StatusCode::UNIMPLEMENTED, "unknown method"}); }
    void OnDone() override { delete this; }
  };

  void Arrived(Reactor* reactor) {
    std::vector<Reactor*> ready;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      waiting_.push_back(reactor);
      if (static_cast<int>(waiting_.size()) < together_) return;
      together_ = 1;
      ready.swap(waiting_);
    }
    for (Reactor* one : ready) one->Reply();
  }

  const Answerer answer_;
  std::function<void(double)> on_deadline_;
  std::mutex mutex_;
  int together_;
  std::vector<Reactor*> waiting_;
  std::vector<std::string> announced_;
  std::atomic<int> calls_{0};
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

StubServer::Answer Ok(int) { return {}; }

class EngineTest : public testing::Test {
 protected:
  EngineTest() {
    WorkloadOptions options;
    options.sizes = {4096};
    workload_ = *BuildWorkload(options);
    step_.warm_up = absl::ZeroDuration();
    // The timeout is only a limit: tests end by --calls or by the fake clock.
    step_.timeout = absl::Seconds(60);
  }

  Engine Connect(const StubServer& server, int connections = 1, int workers = 1,
                 bool retry = false) {
    auto channels =
        ConnectAll(server.address(), connections, retry, absl::Seconds(60));
    EXPECT_TRUE(channels.ok()) << channels.status();
    return Engine(&workload_, *channels, workers, &clock_);
  }

  // Answers all calls; the first answer comes this long after the start.
  StubServer::Answerer FirstTakes(std::int64_t nanos) {
    return [this, nanos](int call) {
      if (call == 0) clock_.AdvanceTo(kStart + nanos);
      return StubServer::Answer{};
    };
  }

  StepResult Run(Engine engine) {
    std::int64_t seen = 0;
    StepResult result = engine.Run(step_, [&](const Interval& interval) {
      seen += interval.counts.ok + interval.counts.Failed();
    });
    EXPECT_EQ(seen, result.total.ok + result.total.Failed());
    return result;
  }

  FakeClock clock_;
  std::vector<Case> workload_;
  StepOptions step_;
};

TEST_F(EngineTest, OpenLoopCountsLatencyFromWhenACallWasDue) {
  StubServer server(FirstTakes(300 * kMilli));
  step_.rate = 1000;
  step_.calls = 100;
  step_.in_flight = 1;

  const StepResult result = Run(Connect(server));

  // The first call takes 300 ms. Call n is due after n ms, but is sent, and
  // answered at once, only after those 300 ms.
  EXPECT_EQ(result.total.ok, 100);
  EXPECT_EQ(result.unsent, 0);
  EXPECT_EQ(result.total.latency.max(), 300 * kMilli);
  EXPECT_EQ(result.total.latency.min(), 201 * kMilli);
  EXPECT_EQ(result.total.latency.Mean(), 250.5 * kMilli);
}

TEST_F(EngineTest, ClosedLoopCountsLatencyFromTheSending) {
  StubServer server(FirstTakes(300 * kMilli));
  step_.calls = 100;
  step_.in_flight = 1;

  const StepResult result = Run(Connect(server));

  EXPECT_EQ(result.total.ok, 100);
  EXPECT_EQ(result.total.latency.max(), 300 * kMilli);
  EXPECT_LE(result.total.latency.Percentile(99), kMilli);
}

TEST_F(EngineTest, CallsThatCouldNotBeSentInTimeAreErrors) {
  StubServer server(FirstTakes(500 * kMilli));
  step_.rate = 1000;
  step_.duration = absl::Milliseconds(100);
  step_.in_flight = 1;

  const StepResult result = Run(Connect(server));

  EXPECT_EQ(result.total.ok, 1);
  EXPECT_EQ(result.unsent, 99);
  EXPECT_EQ(result.ErrorRate(), 0.99);
  EXPECT_EQ(result.seconds, 0.5);
}

TEST_F(EngineTest, SleepsThatEndLateLeaveNoCallUnsentAndAreTheTestersOwn) {
  clock_.set_late(50 * kMilli);
  StubServer server(Ok);
  step_.rate = 1000;
  step_.duration = absl::Milliseconds(100);
  step_.in_flight = 1000;

  const StepResult result = Run(Connect(server));

  EXPECT_EQ(result.total.ok, 100);
  EXPECT_EQ(result.unsent, 0);
  EXPECT_GE(result.total.latency.max(), 50 * kMilli);
  EXPECT_EQ(result.send_delay.max(), 50 * kMilli);
  // Each sleep ends 50 ms late. Only calls that were due in the last 10 ms of a
  // sleep are in time.
  EXPECT_EQ(result.limited, 0);
  EXPECT_GE(result.sent_late, 40);
  EXPECT_LE(result.sent_late, 90);
  EXPECT_FALSE(result.TesterLimited()) << "all of them were good";
}

TEST_F(EngineTest, ACoolDownEndsWhatWasDueUnderTheSameLoad) {
  // The last call of the window is answered 60 ms after the window's end,
  // within the call's deadline. Calls that become due in these 60 ms do not
  // count.
  StubServer server(FirstTakes(160 * kMilli));
  step_.rate = 1000;
  step_.duration = absl::Milliseconds(100);
  step_.in_flight = 1;
  step_.cool_down = true;

  const StepResult result = Run(Connect(server));

  EXPECT_EQ(result.unsent, 0);
  EXPECT_EQ(result.Calls(), 100);
  EXPECT_EQ(result.total.good, 100);
  EXPECT_GT(server.calls(), 100);
}

TEST_F(EngineTest, DropsCallsThatAreOverdueBeforeTheirSending) {
  // The first call is answered after 500 s. In this time a call became due
  // every second; the calls of the last 100 s still have time.
  constexpr std::int64_t kSecond = 1000 * kMilli;
  StubServer server(FirstTakes(500 * kSecond));
  step_.rate = 1;
  step_.duration = absl::Seconds(600);
  step_.in_flight = 1;
  step_.timeout = absl::Seconds(100);

  const StepResult result = Run(Connect(server));

  EXPECT_EQ(result.dropped, 400);
  EXPECT_EQ(result.unsent, 0);
  EXPECT_EQ(result.total.ok, 200);
  EXPECT_EQ(result.Calls(), 600);
  EXPECT_EQ(result.in_flight_limit, 1);
}

TEST_F(EngineTest, DeadlinesCountFromWhenACallWasDue) {
  // Calls are 50 s late by the clock. If deadlines began when calls are sent,
  // the server would see 60 s.
  clock_.set_late(50'000 * kMilli);
  std::atomic<double> left{0};
  StubServer server(Ok);
  server.set_on_deadline([&](double seconds) { left = seconds; });
  step_.rate = 1000;
  step_.calls = 1;

  const StepResult result = Run(Connect(server));

  EXPECT_EQ(result.total.ok, 1);
  EXPECT_EQ(result.total.good, 1);
  EXPECT_LT(left, 30);
}

TEST_F(EngineTest, AnswersAfterTheDeadlineAreNotGood) {
  // The answer is late by the engine's clock; gRPC's own deadline has not
  // passed.
  StubServer server(FirstTakes(61'000 * kMilli));
  step_.rate = 1000;
  step_.calls = 1;

  const StepResult result = Run(Connect(server));

  EXPECT_EQ(result.total.ok, 1);
  EXPECT_EQ(result.total.good, 0);
}

TEST_F(EngineTest, WarmUpIsNotCounted) {
  StubServer server(Ok);
  step_.rate = 1000;
  step_.warm_up = absl::Milliseconds(50);
  step_.duration = absl::Milliseconds(50);
  step_.in_flight = 1000;

  const StepResult result = Run(Connect(server, 3, 2));

  EXPECT_EQ(result.total.ok, 50);
  EXPECT_EQ(server.calls(), 100);
  EXPECT_EQ(result.seconds, 0.05);
}

TEST_F(EngineTest, ClosedLoopKeepsTheCallsInFlight) {
  // The server answers only once ten calls have come.
  StubServer server(Ok, 10);
  step_.calls = 200;
  step_.in_flight = 10;

  const StepResult result = Run(Connect(server, 4, 3));

  EXPECT_EQ(result.total.ok, 200);
  EXPECT_EQ(server.calls(), 200);
}

TEST_F(EngineTest, CountsErrorsByCodeAndKeepsRefusalsApart) {
  StubServer server([](int call) -> StubServer::Answer {
    if (call % 4 == 0) return {{grpc::StatusCode::UNAVAILABLE, "no"}};
    if (call % 4 == 1) return {{grpc::StatusCode::INVALID_ARGUMENT, "no"}};
    if (call % 4 == 2) return {{grpc::StatusCode::RESOURCE_EXHAUSTED, "full"}};
    return {};
  });
  step_.calls = 40;

  const StepResult result = Run(Connect(server));

  EXPECT_EQ(result.total.ok, 10);
  EXPECT_THAT(result.total.errors,
              testing::ElementsAre(testing::Pair("INVALID_ARGUMENT", 10),
                                   testing::Pair("RESOURCE_EXHAUSTED", 10),
                                   testing::Pair("UNAVAILABLE", 10)));
  EXPECT_EQ(result.ErrorRate(), 0.75);
  EXPECT_EQ(result.total.latency.count(), 10);
  EXPECT_EQ(result.total.failed.count(), 30);
  EXPECT_EQ(result.total.refused.count(), 20);
}

TEST_F(EngineTest, RetriesAsThePublishedConfigSays) {
  StubServer server([](int call) -> StubServer::Answer {
    if (call == 0) return {{grpc::StatusCode::UNAVAILABLE, "no"}};
    return {};
  });
  step_.calls = 1;

  const StepResult result = Run(Connect(server, 1, 1, true));

  EXPECT_EQ(result.total.ok, 1);
  EXPECT_EQ(server.calls(), 2);
}

TEST_F(EngineTest, AnnouncesTheBytesOfEveryMessage) {
  StubServer server(Ok);
  step_.calls = 5;

  const StepResult result = Run(Connect(server));

  EXPECT_EQ(result.total.bytes_sent, 5 * workload_[0].requests[0].bytes);
  EXPECT_EQ(result.total.bytes_received, 5 * 6);
  EXPECT_THAT(
      server.announced(),
      testing::AllOf(testing::SizeIs(5), testing::Each(std::to_string(
                                             workload_[0].requests[0].bytes))));
}

TEST_F(EngineTest, AnswersThatDifferFromTheFirstAreWrong) {
  // Call 0 gives the expected answer.
  StubServer server([](int call) -> StubServer::Answer {
    return {grpc::Status::OK, call % 2 ? "answer" : "another"};
  });
  Engine engine = Connect(server);
  const absl::Status learned = engine.Learn(
      &workload_, absl::Seconds(60),
      [](const Case&, const std::string&, const std::string& answer) {
        EXPECT_EQ(answer, "another");
        return absl::OkStatus();
      });
  ASSERT_TRUE(learned.ok()) << learned;
  step_.calls = 20;
  step_.verify = 1;

  const StepResult result = Run(std::move(engine));

  EXPECT_EQ(result.total.ok, 20);
  EXPECT_EQ(result.total.verified, 20);
  EXPECT_EQ(result.total.wrong, 10);
  EXPECT_EQ(result.total.first_wrong,
            "ApplyRope float32 4KiB: an answer of 6 bytes differs from the "
            "first");
}

TEST_F(EngineTest, LearnsNothingFromAnAnswerThatIsNotApproved) {
  StubServer server(Ok);
  const absl::Status learned = Connect(server).Learn(
      &workload_, absl::Seconds(60),
      [](const Case&, const std::string&, const std::string&) {
        return absl::DataLossError("wrong");
      });
  EXPECT_EQ(learned, absl::DataLossError("wrong"));
}

TEST_F(EngineTest, StopsWhenTold) {
  std::atomic<bool> stop{false};
  StubServer server([&](int call) {
    if (call == 10) stop = true;
    return StubServer::Answer{};
  });
  step_.in_flight = 1;  // the clock never reaches the end of the duration
  const StepResult result = Connect(server).Run(step_, nullptr, &stop);
  EXPECT_GE(result.total.ok, 11);
}

TEST(ArrivalsTest, EvenArrivalsAreOnePeriodApart) {
  Arrivals arrivals(2000, 250'000, false, 1);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(arrivals.Next(), 250'000 + i * 500'000);
}

TEST(ArrivalsTest, RandomArrivalsAreAPoissonProcess) {
  Arrivals arrivals(1000, 0, true, 1);
  const int n = 100000;
  double sum = 0, squares = 0;
  std::int64_t last = 0;
  for (int i = 0; i < n; ++i) {
    const std::int64_t due = arrivals.Next();
    ASSERT_GE(due, last);
    const auto gap = static_cast<double>(due - last) / kMilli;
    last = due;
    sum += gap;
    squares += gap * gap;
  }
  // Mean 1 ms, variance 1 ms^2; for n gaps the standard deviation of the mean
  // is 1 / sqrt(n), and of the second moment sqrt(20 / n): allow five of each.
  EXPECT_NEAR(sum / n, 1, 5 / std::sqrt(n));
  EXPECT_NEAR(squares / n, 2, 5 * std::sqrt(20.0 / n));
}

TEST(ArrivalsTest, EqualSeedsGiveEqualTimes) {
  Arrivals a(1000, 0, true, 7), b(1000, 0, true, 7), c(1000, 0, true, 8);
  const std::int64_t first = a.Next();
  EXPECT_EQ(first, b.Next());
  EXPECT_NE(first, c.Next());
}

}  // namespace
}  // namespace posenc::load
