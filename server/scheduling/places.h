// Decides which calls run now, which calls wait, and which are refused.
//
// A party is a group of calls: all calls with one token, all calls of one TCP
// connection, or all calls over unix sockets. The server serves one call of
// each party in turn: the party's call with the earliest deadline.
//
//   Enter --a place is free--> at work --Leave--> the next call's turn
//     |---waits---------------'  |
//     |     '---it can no longer end before its deadline: refused
//     '---it could not end before its deadline, or too many calls wait:
//         refused, before its payload is read
//
// A call at work has a place. The limit on calls at work depends on the time
// that calls take. The limit shrinks by a tenth if calls take more than
// kMostSlowdown times as long as on an idle server. Otherwise the limit grows
// by one if calls had to wait.

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
#include "absl/time/time.h"
#include "server/scheduling/waiter.h"

namespace posenc::server {

// Thread-safe.
class Places {
 public:
  struct Request {
    int method = 0;
    std::uint64_t party = 0;
    double deadline = 0;  // seconds on the clock
    // If false, the call is never refused, because its message is already read.
    bool refusable = true;
    bool large = false;  // needs a place even if the method's calls are cheap
  };

  // A call's place. Must exist until Leave(), or until the call was refused.
  class Ticket {
   public:
    // Must not be called while the call waits, because another thread may grant
    // the place at the same time.
    bool held() const { return held_; }

   private:
    friend class Places;
    Request request_;
    Waiter* waiter_ = nullptr;  // null: it does not wait
    bool held_ = false;         // written by the thread that grants the place
    double since_ = 0;
    std::multimap<double, Ticket*>::iterator position_;
  };

  // `now` returns the seconds of a monotonic clock. Methods are numbered
  // [0, methods).
  Places(int threads, std::size_t max_waiting, int methods,
         std::function<double()> now);

  double Now() const { return now_(); }

  // Returns the mean time for which recent calls of the method had a place.
  double SecondsOf(int method) const;

  // Returns OK if the call has a place, or needs no place because calls of its
  // method are cheap. (Refusing a cheap call costs about as much as serving
  // it.) Returns an error if the call is refused. Returns nullopt if the call
  // waits. Then waiter->Resume() follows, unless StopWaiting() returns true.
  std::optional<absl::Status> Enter(const Request& request, Ticket* ticket,
                                    Waiter* waiter);

  // Stops waiting. Returns false if Resume() was called, or is being called.
  bool StopWaiting(Ticket* ticket);

  // Releases the place, if the call has one. `computed` is the computing time
  // of a served call, and nullopt for other calls. Only served calls change the
  // means of their method. `unread` is the time at the end in which the peer
  // did not read the response. This time does not count as time with a place.
  void Leave(Ticket* ticket, std::optional<absl::Duration> computed,
             absl::Duration unread = absl::ZeroDuration());

  void SetMaxWaiting(std::size_t max_waiting);

  struct State {
    std::size_t at_work = 0, waiting = 0;
    double limit = 0;
  };
  State state() const;

 private:
  struct Method {
    double computing = 0;  // mean computing time, in seconds
    bool known = false;
    double seconds = 0;       // mean time with a place
    double idle_seconds = 0;  // the same mean while the server is nearly idle
  };
  struct Party {
    std::multimap<double, Ticket*> calls;  // by deadline
    double seconds = 0;                    // expected time of all its calls
  };
  using Told = std::vector<std::pair<Waiter*, absl::Status>>;

  // The caller of these functions must hold the lock.
  double Expected(int method) const { return methods_[method].seconds; }
  double WaitBefore(const Request& request) const;
  void Grant(Ticket* ticket, double now);
  void Add(Ticket* ticket);
  void Remove(Ticket* ticket);
  // `alone` is true if at most lowest_limit_ calls were at work while the call
  // ran.
  void Adapt(Method* method, double seconds, bool alone);
  Told Fill(double now);
  bool IsCrowded() const {
    return static_cast<double>(at_work_) > lowest_limit_;
  }
  bool IsFull() const { return static_cast<double>(at_work_) >= limit_; }

  const double lowest_limit_;
  const std::function<double()> now_;
  mutable std::mutex mutex_;
  std::size_t max_waiting_;
  double limit_;
  std::size_t at_work_ = 0, waiting_ = 0;
  // The last time at which more than lowest_limit_ calls were at work.
  double crowded_at_ = -1;
  std::vector<Method> methods_;
  absl::flat_hash_map<std::uint64_t, Party>
      parties_;                      // parties whose calls wait
  std::deque<std::uint64_t> turns_;  // the same parties, next one first
  // State since the limit was last adapted: the sum of the slowdowns of the
  // calls that have ended, and the number of these calls.
  double slowdowns_ = 0;
  std::size_t ended_ = 0;
  bool was_full_ = false;
};

}  // namespace posenc::server
