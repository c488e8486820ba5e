// An open loop over raw connections: calls are due at a fixed rate, independent
// of the server, and each outcome is counted.
//
// While calls are open, the loop polls every 0.1 ms instead of waiting for
// events: at 100,000 calls a second it would otherwise spend all of its time on
// wake-ups. Each poll sends all calls that are due, and a call's delay counts
// as lateness.

#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <queue>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/tools/load/histogram.h"
#include "tests/chaos/offer/connection.h"

namespace posenc::offer {

struct Options {
  std::string server;
  int connections = 16;
  double rate = 1000;  // calls per second
  double seconds = 5;
  double warm_up = 1;  // time before `seconds`; its calls do not count
  std::int64_t deadline_nanos =
      1'000'000'000;  // of a call, counted from when it is due
  // How often a refused call is tried again, while its deadline allows it. It
  // waits for 10 ms, 20 ms, ..., each multiplied by a random factor from 0.5 to
  // 1.5.
  int retries = 0;
  // If above 0, the client gives up each call this long after it was sent.
  std::int64_t cancel_nanos = 0;
  std::uint64_t seed = 1;
};

// Calls by outcome; each call has exactly one.
struct Outcomes {
  std::int64_t due = 0;
  std::int64_t good = 0;     // OK within the deadline
  std::int64_t late = 0;     // OK after the deadline
  std::int64_t refused = 0;  // RESOURCE_EXHAUSTED or UNAVAILABLE
  std::int64_t expired = 0;  // no answer by the deadline, or DEADLINE_EXCEEDED
  std::int64_t dropped = 0;  // not sent by its deadline
  std::int64_t cancelled = 0;
  std::int64_t lost = 0;  // the connection was lost
  std::int64_t other = 0;

  std::int64_t retried = 0;  // attempts beyond the first
  std::map<int, std::int64_t> codes;
  load::Histogram good_latency, refused_latency, send_delay;
  double cpu_share = 0;  // share of a core that the generator used
  std::int64_t bytes_out = 0, bytes_in = 0;
};

// Single-threaded.
class Offer {
 public:
  Offer(const Options& options, const Request* request);

  // Connects and offers the load. Returns UNAVAILABLE if a connection fails.
  absl::Status Run();
  const Outcomes& outcomes() const { return outcomes_; }

 private:
  enum class State { kWaiting, kOpen, kEnded };
  struct Call {
    std::int64_t due = 0;
    State state = State::kWaiting;
    int attempts = 0;
    std::uint32_t connection = 0, stream = 0;
  };
  struct Retry {
    std::int64_t at;
    std::size_t call;
    bool operator<(const Retry& other) const { return at > other.at; }
  };

  absl::Status Connect();
  // Exchanges settings, so that the first calls have an open connection.
  void Settle();
  void Loop();
  void AddDue();
  void Send();
  bool Start(std::size_t call);
  void Expire();
  void CancelSome();
  void Ended(std::size_t call, int status);
  void GiveUp(Call* call);
  // Reads and writes without blocking. Returns true if there may be more to
  // read.
  bool Exchange();
  std::int64_t NextDue() const;
  // Waits until the next poll.
  void Wait() const;
  bool Counts(const Call& call) const {
    return call.due >= measured_ && call.due < end_;
  }

  const Options options_;
  const Request* const request_;
  int poll_ = -1;
  std::vector<std::unique_ptr<Connection>> connections_;
  std::vector<std::size_t> unread_;  // connections with something to read
  std::size_t turn_ = 0;             // the next connection

  std::vector<Call> calls_;          // in the order in which they are due
  std::deque<std::size_t> backlog_;  // calls due but not sent, oldest first
  std::priority_queue<Retry> retries_;
  std::size_t oldest_ = 0;  // all calls before this one have ended
  std::deque<std::size_t> to_cancel_;
  std::int64_t open_ = 0;  // calls
  std::mt19937_64 random_;

  std::int64_t now_ = 0;
  std::int64_t begin_ = 0, measured_ = 0, end_ = 0;
  std::int64_t offered_ = 0;  // calls that came due
  Outcomes outcomes_;
};

}  // namespace posenc::offer
