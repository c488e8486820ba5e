// Overload: stalled peers do not stop other callers, and past its capacity the
// server still answers. `./run chaos` measures how fast.

#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "client/tools/load/clock.h"
#include "client/tools/load/engine.h"
#include "client/tools/load/workload.h"
#include "gtest/gtest.h"
#include "posenc/client.h"
#include "server/service/server.h"
#include "tests/chaos/offer/connection.h"
#include "tests/chaos/offer/frame.h"
#include "tests/chaos/offer/offer.h"
#include "tests/fixtures/http2.h"

namespace posenc {
namespace {

std::string Framed(const std::string& message) {
  return absl::StrCat(std::string(1, '\0'),
                      offer::U32(static_cast<std::uint32_t>(message.size())),
                      message);
}

class OverloadTest : public testing::Test {
 protected:
  void SetUp() override {
    path_ = absl::StrCat(testing::TempDir(), "posenc-overload-", getpid());
    server::ServerOptions options;
    options.listen = {absl::StrCat("unix:", path_)};
    options.limits.max_request_bytes = std::int64_t{64} << 20;
    options.limits.max_response_bytes = std::int64_t{64} << 20;
    options.limits.in_flight_bytes = std::int64_t{1} << 30;
    options.limits.threads = 1;
    auto server = server::Server::Start(options);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  void TearDown() override {
    server_.reset();
    unlink(path_.c_str());
  }

  // Returns the server's current capacity, from a closed loop.
  double CallsPerSecond(const std::vector<load::Case>& cases) const {
    const auto channels = load::ConnectAll(absl::StrCat("unix:", path_), 2,
                                           false, absl::Minutes(1));
    EXPECT_TRUE(channels.ok()) << channels.status();
    if (!channels.ok()) return 1;
    load::SteadyClock clock;
    load::StepOptions step;
    step.in_flight = 4;
    step.warm_up = absl::ZeroDuration();
    step.calls = 20;
    step.timeout = absl::Minutes(1);
    const load::StepResult result =
        load::Engine(&cases, *channels, 1, &clock)
            .Run(step, [](const load::Interval&) {});
    EXPECT_GT(result.total.ok, 0);
    return static_cast<double>(result.total.ok) / result.seconds;
  }

  std::string path_;
  std::unique_ptr<server::Server> server_;
};

TEST_F(OverloadTest, StalledSendersDoNotStopOthers) {
  std::vector<http2::Socket> senders;
  for (int i = 0; i < 24; ++i) {
    senders.push_back(
        http2::HalfAMessage(absl::StrCat("unix:", path_),
                            "/posenc.v1.PositionalEncodingService/ApplyRope"));
  }
  ClientOptions options;
  options.target = absl::StrCat("unix:", path_);
  const Client client = Client::Connect(options);
  v1::ResolveRopeRequest request;
  request.mutable_rope()->mutable_spec()->set_rotary_dim(128);
  request.mutable_rope()->mutable_spec()->set_pairing(v1::PAIRING_HALF_SPLIT);
  for (int i = 0; i < 20; ++i) {
    const auto resolved = client.ResolveRope(request);
    EXPECT_TRUE(resolved.ok()) << resolved.status();
  }
}

TEST_F(OverloadTest, AnswersCallsPastItsCapacity) {
  load::WorkloadOptions workload;
  workload.mix = {{"BuildTable", 1}};
  workload.sizes = {4 << 20};
  const auto cases = load::BuildWorkload(workload);
  ASSERT_TRUE(cases.ok()) << cases.status();
  offer::Request request;
  request.path = (*cases)[0].method;
  request.message = Framed(load::BytesOf((*cases)[0].requests[0].message));
  offer::Options options;
  options.server = absl::StrCat("unix:", path_);
  // A server that accepted all calls would miss the deadline of each counted
  // call: at six times its capacity the first call would end after 12 s, but
  // the deadline of the last is at 8.9 s. A server that refuses calls accepts a
  // call only if its expected wait is at most a quarter of its remaining time,
  // so accepted calls have time to spare even on a busy machine.
  options.deadline_nanos = 4'900'000'000;
  options.warm_up = 2;
  options.seconds = 2;
  // The test server finishes accepted calls in time. A server that works on all
  // calls at once finishes almost none. If other processes use the machine,
  // even refusals are late; such a run is not conclusive, and is repeated with
  // the new capacity. A run without refusals was not past the capacity, because
  // a closed loop underestimates the capacity.
  offer::Outcomes outcomes;
  for (int run = 0;
       run < 8 && (outcomes.good <= outcomes.expired || outcomes.refused == 0);
       ++run) {
    const bool coped = outcomes.due > 0 && outcomes.good == outcomes.due;
    options.rate = coped ? 4 * options.rate : 6 * CallsPerSecond(*cases);
    offer::Offer offer(options, &request);
    ASSERT_TRUE(offer.Run().ok());
    outcomes = offer.outcomes();
  }
  EXPECT_GT(outcomes.refused, 0);
  EXPECT_GT(outcomes.due, 0);
  EXPECT_GT(outcomes.good, 0);
  EXPECT_GT(outcomes.good, outcomes.expired);
  EXPECT_EQ(outcomes.lost, 0);
  EXPECT_EQ(outcomes.other, 0);
}

}  // namespace
}  // namespace posenc
