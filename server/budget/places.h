// Decides which calls the server works on now, which wait, and which are
// refused because they could not end in time.
//
// All calls that are worked on at once share the processor and the links, and
// become late together. So only a limited number of calls is at work. The
// others wait in turn: one call of each peer (connection, or token), and of one
// peer the call with the earliest deadline first.
//
//   Enter --a place is free--> at work --Leave--> the next one's turn
//     |---waits---------------'  |
//     |     '---its deadline cannot be met any more: refused
//     '---could not end in time: refused, before its payload is read
//
// The limit follows the time that calls take. While calls take no more than
// kMostSlowdown times as long as they do on a server that has little to do, the
// limit grows by one; when they take longer, it shrinks by a tenth.
//
// How long a call waits is estimated from what is before it and from the time
// that calls of its RPC have taken lately.

#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "server/budget/waiter.h"

namespace posenc::server {

// Safe for many threads.
class Places {
 public:
  struct Request {
    int method = 0;
    std::uint64_t peer = 0;  // who shares with others
    double deadline = 0;     // seconds on the clock
    // False if much of the call's work is done: it is not refused for its wait.
    bool refusable = true;
  };

  // A call's place. Lives until Leave(), or until it was refused.
  class Ticket {
   public:
    // Not while the call waits: another thread may grant the place.
    bool held() const { return held_; }

   private:
    friend class Places;
    Request request_;
    Waiter* waiter_ = nullptr;  // null: it does not wait
    bool held_ = false;         // written by the thread that grants the place
    double since_ = 0;
    std::multimap<double, Ticket*>::iterator position_;
  };

  // now: seconds of a monotonic clock.
  // Methods are numbered [0, methods).
  Places(int threads, std::size_t max_waiting, int methods,
         std::function<double()> now);

  double Now() const { return now_(); }

  // Whether calls of the method take so little that refusing one costs about
  // as much. They need no place.
  bool IsCheap(int method) const;

  // For how long calls of the method have had a place lately, in the mean.
  double SecondsOf(int method) const;

  // OK: the call has a place. An error: it is refused. nullopt: it waits;
  // waiter->Resume() follows, unless StopWaiting().
  std::optional<absl::Status> Enter(const Request& request, Ticket* ticket,
                                    Waiter* waiter);

  // False if Resume() was called, or is being called.
  bool StopWaiting(Ticket* ticket);

  // Gives the place back, if there is one. served: the time that the call took
  // tells what such calls take.
  void Leave(Ticket* ticket, bool served);

  // A call of the method was computed for so long.
  void Learn(int method, double computing);

  void SetMaxWaiting(std::size_t max_waiting);

  struct State {
    std::size_t at_work = 0, waiting = 0;
    double limit = 0;
  };
  State state() const;

 private:
  struct Method {
    double computing = 0;  // seconds, in the mean
    bool known = false;
    double seconds = 0;  // from Enter() to Leave(), in the mean
    double least = 0;    // the same of a server that has little to do
  };
  struct Peer {
    std::multimap<double, Ticket*> calls;  // by deadline
    double seconds = 0;                    // of them all
  };
  using Told = std::vector<std::pair<Waiter*, absl::Status>>;

  // These expect the lock.
  double Expected(int method) const { return methods_[method].seconds; }
  double WaitBefore(const Request& request) const;
  void Serve(Ticket* ticket, double now);
  void Add(Ticket* ticket);
  void Remove(Ticket* ticket);
  // alone: no more calls than the least limit were at work meanwhile.
  void Adapt(Method* method, double seconds, bool alone);
  Told Fill(double now);
  bool IsCrowded() const {
    return static_cast<double>(at_work_) > least_limit_;
  }
  bool IsFull() const { return static_cast<double>(at_work_) >= limit_; }

  const double least_limit_;
  const std::function<double()> now_;
  mutable std::mutex mutex_;
  std::size_t max_waiting_;
  double limit_;
  std::size_t at_work_ = 0, waiting_ = 0;
  double crowded_at_ = -1;  // when more than least_limit_ were at work last
  std::vector<Method> methods_;
  absl::flat_hash_map<std::uint64_t, Peer> peers_;  // that have calls waiting
  std::deque<std::uint64_t> turns_;                 // of them: whose is next
  // Of the calls that have ended since the limit was changed.
  double slowdowns_ = 0;
  std::size_t ended_ = 0;
  bool was_full_ = false;
};

}  // namespace posenc::server
