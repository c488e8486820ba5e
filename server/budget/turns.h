// Decides which calls are worked on now, which wait, and which are refused
// because they could not end in time.
//
// All calls that are worked on at once share the processor and the links, and
// become late together. So only a few are, and a call that would have to wait
// too long is told so at its headers, when it has cost next to nothing:
//
//   Enter --served----------------------> in service --Leave-->
//     |---waits in FairQueue--TurnCame------^   |
//     |        '--TurnLost (too late now)       '--lease over: goes on without
//     '---refused                                  a turn
//
// In service are up to 2 x threads + 1 calls, and more while their bytes sum to
// 8 MiB a thread and their costs to 20 ms. More in service is worse, sharply:
// 64 MiB gave a seventh of the good calls of 24 MiB at 1.6 times the capacity,
// and six tables of 4 MiB where three may be gave three quarters of the good
// calls at twice the capacity, with three times their p99. Fewer leave the link
// idle. A few places more are for peers who use little (FairQueue::Light).
//
// A call is refused if what is before it takes longer than a quarter of the
// time that is left to its deadline, or than the longest wait:
//
//   longest wait = a tenth of the time left, if that is 4.5 s or more: what is
//                  left of 5 s when a call comes
//                = 100 ms else, for a burst
//                = 5 ms else, once the queue has been standing for 250 ms: a
//                  standing queue serves nobody earlier, and costs throughput
//                = 50 ms at least, for a peer who uses little
//
// A turn is leased: who holds one for longer than the server would need, while
// others wait, waits for his own peer (a slow line, a sender that stalls), and
// goes on without a turn; at once if the processor idles. A stalled peer
// therefore stops nobody. A call that is computed, or waits for a thread to
// compute it, does not wait for its peer: it keeps its turn, and a server that
// has such calls and uses little of the processor does not idle, but others
// have the machine.
//
// Cheap calls (CallCosts) take no turn: refusing them costs nearly as much.
//
// Times are seconds of a monotonic clock. The server's time, in which costs are
// counted, is the processor time of this process divided by its threads: it
// stands still while calls wait for their peers, and neighbours on the machine
// do not run it. What refusing takes is not counted: past capacity it is most
// of all, and calls in service would seem to cost it. They wait for it, though.

#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <mutex>
#include <vector>

#include "server/budget/call_costs.h"
#include "server/budget/fair_queue.h"
#include "server/budget/ticker.h"

namespace posenc::server {

// Safe for many threads. Waiters are called without locks.
class Turns {
 public:
  // What a call tells about itself.
  struct Request {
    int kind = 0;            // CallCosts::KindOf()
    std::uint64_t peer = 0;  // who shares with others
    double deadline = 0;     // on the clock; 300 s away for calls without one
    std::int64_t announced = 0;
    // A call of which much has been done already is not refused for the wait,
    // only if its deadline is lost.
    bool refusable = true;
  };

  // A call that takes a turn. Lives until Leave(), or until a refusal.
  class Waiter {
   public:
    virtual ~Waiter() = default;
    // Its turn has come. Must return soon, as must the next.
    virtual void TurnCame() = 0;
    // It cannot end in time any more, and waits no longer.
    virtual void TurnLost() = 0;

    // Whether the peer uses so little that its work should go first. From
    // Enter() on.
    bool light() const { return light_; }

    // Whether the server works on the call, or would if it had a thread free:
    // its lease begins anew after that.
    void SetBusy(bool busy) { busy_.store(busy, std::memory_order_relaxed); }

   private:
    friend class Turns;
    enum class State { kOut, kWaiting, kServed, kLapsed };
    std::atomic<bool> busy_{false};
    State state_ = State::kOut;
    int kind_ = 0;
    bool light_ = false;
    bool first_ = false;      // the kind is learned from this call
    std::int64_t bytes_ = 0;  // as expected
    double lease_ = 0;        // its length
    double lease_end_ = 0;
    double since_ = 0;    // when it came into service
    double started_ = 0;  // on the server's own clock
    double used_ = 0;     // of the server, until its lease or it was over
    FairQueue::Call call_;
    std::list<Waiter*>::iterator served_;
  };

  enum class Entry {
    kServed,
    kWaiting,   // TurnCame() or TurnLost() follows, unless StopWaiting()
    kRefused,   // RESOURCE_EXHAUSTED
    kNotNeeded  // the call is cheap: no Leave() follows
  };

  // Clocks, for tests: seconds of a monotonic clock, and of the server's time
  // as above but for the division by threads.
  struct Clocks {
    std::function<double()> now;
    std::function<double()> processor;
  };
  static Clocks RealClocks();

  // At most `max_waiting` calls wait that may be refused. Methods are numbered
  // [0, methods).
  Turns(int threads, std::size_t max_waiting, int methods,
        Clocks clocks = RealClocks());

  double Now() const { return clocks_.now(); }

  // Whether Enter() would refuse the call: an answer before anything is made
  // for it.
  bool Refuses(const Request& request);

  Entry Enter(const Request& request, Waiter* waiter);

  // Stops waiting. False if the waiter has been called, or is being called.
  bool StopWaiting(Waiter* waiter);

  // The call is done, or gone on to wait for nobody. `moved`: bytes of its
  // messages both ways, or one of these. `computing`: for how many seconds of
  // the clock it was computed, or waited for a thread to compute it; what it
  // took beside that it may have waited for its peer.
  // To be called once after kServed and TurnCame().
  static constexpr std::int64_t kFailed =
      -1;  // no bytes to learn; its time is the least of its kind
  static constexpr std::int64_t kNotWorkedOn = -2;  // nothing is learned
  void Leave(Waiter* waiter, std::int64_t moved, double computing);

  void SetMaxWaiting(std::size_t max_waiting);

  // Forgets peers that have made no call for a while: the next call does so,
  // too, but may not come.
  void ForgetIdlePeers();

  // So many seconds of the processor went into refusing calls.
  void AddRefusing(double seconds);

  struct State {
    std::size_t in_service = 0;
    std::size_t waiting = 0;
    std::int64_t refused = 0;    // since the start
    std::int64_t lost = 0;       // of them: after waiting
    std::vector<double> shares;  // seconds of a call, by method
  };
  State state() const;

 private:
  // These expect the lock.
  void Advance();
  // Of the processor's time, what is left beside refusing calls: (0, 1].
  double LeftToServe(double now);
  bool Fits(std::int64_t bytes, bool light) const;
  void Learn(const Waiter& waiter, std::int64_t moved, double computing,
             bool lapsed, double now);
  static double OrderOf(const Request& request, double now);
  std::int64_t ExpectedBytes(const Request& request) const;
  bool TooLate(const Request& request, const FairQueue::Call& call, bool light,
               double now);
  // Whether the call could not end before its deadline if it were served now.
  bool IsLost(const FairQueue::Call& call, double now) const;
  void CountRefusal(int kind, double now);
  // Whether nothing is known of the kind, nor will be soon.
  bool MustLearn(int kind) const;
  void Serve(Waiter* waiter, double now);
  void EndService(Waiter* waiter, double now);
  // Moves calls from the queue into service; tells what to call.
  struct Calls {
    std::vector<Waiter*> came, lost;
  };
  Calls Fill(double now);
  void Prepare(const Request& request, Waiter* waiter, double now);
  void QueueChanged(double now);

  static void Tell(const Calls& calls);
  // Ends leases; false if nobody waits any more.
  bool Tick();

  const int threads_;
  const int methods_;
  const Clocks clocks_;
  mutable std::mutex mutex_;
  std::size_t max_waiting_;
  CallCosts costs_;
  std::vector<bool> learning_;  // by kind: its first call is in progress
  std::vector<std::uint8_t>
      passed_;  // by kind: cheap calls since the last turn
  std::vector<double> kind_refused_at_;  // the last time
  FairQueue queue_;
  std::list<Waiter*> served_;  // whose lease runs
  std::int64_t served_bytes_ = 0;
  double served_cost_ = 0;
  std::size_t served_light_ = 0;
  double own_clock_ = 0;     // what one call in service has got
  double processor_at_ = 0;  // of the last Advance()
  std::atomic<std::int64_t> refusing_nanos_{0};
  std::int64_t refusing_at_ = 0;  // what Advance() has taken off
  // Of LeftToServe(): its value, and what it was made of.
  double left_to_serve_ = 1, measured_ = 0;
  std::int64_t measured_refusing_ = 0;
  double empty_at_ = 0;     // when the queue was empty last
  double refused_at_ = -1;  // the last refusal for a standing queue
  bool standing_ = false;
  // Of the ticks: the processor's time and the clock at the last one, when the
  // last one ended, and whether the processor idled before it.
  double processor_at_ticks_ = 0;
  double ticked_ = 0;
  double before_tick_ = 0;
  bool idle_ = false;
  std::int64_t refused_ = 0, lost_ = 0;
  // Last: its thread uses the others.
  Ticker ticker_;
};

}  // namespace posenc::server
