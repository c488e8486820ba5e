// Calls that wait for their turn, in the order in which they should get it: the
// peers in turn, so that each gets the same time of the server, and the calls
// of one peer by their order, which is their deadline if that is soon.
//
// A peer is whoever must not take the turns of others: a connection, or all
// callers with one token. This is start-time fair queueing (Goyal, Vin and
// Cheng, 1996). Each peer has a tag, the time of the server that it has been
// given, on a clock that runs with the tags of the calls that are served:
//
//   served: the first call of the peer with the smallest tag
//   tag += what that call is expected to cost, corrected when it has ended
//   a peer that comes back begins at the clock: it saves up nothing
//
// The queue also remembers what each peer used within the last seconds, to tell
// the peers that use little (Light) from those that make the queue.
//
// Costs and times are seconds: of the server as CallCosts counts them, and of a
// monotonic clock.

#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>

namespace posenc::server {

// Not safe for many threads: Turns guards it.
class FairQueue {
 private:
  struct Peer;

 public:
  // A call, from Push() or Start() until Remove() or End(). It may not move in
  // that time.
  struct Call {
    std::uint64_t peer = 0;
    double deadline = 0;
    double order = 0;       // the calls of one peer are served in this order
    double cost = 0;        // as expected
    void* owner = nullptr;  // of the caller; the queue only hands it back

   private:
    friend class FairQueue;
    Peer* from = nullptr;
    std::multimap<double, Call*>::iterator place;
  };

  bool empty() const { return waiting_ == 0; }
  std::size_t size() const { return waiting_; }

  // The call waits.
  void Push(Call* call, double now);
  // It does not any more.
  void Remove(Call* call);
  // The call that should be served next, or null.
  Call* Front() const;

  // The call, which does not wait, is served from now on.
  void Start(Call* call, double now);
  // It no longer is, and has used so much of the server.
  void End(Call* call, double used, double now);

  // What of those that wait would be served before this call, if it waited.
  double Ahead(const Call& call) const;

  // Whether the peer uses little, its calls in progress included, while others
  // use the server: less than half of what an equal part would be, or less than
  // an equal part while another peer uses more than two.
  bool Light(std::uint64_t peer, double now);

  // Forgets peers that have been idle for a while. Every call of others does
  // so, too.
  void Forget(double now);

 private:
  struct Peer {
    std::uint64_t id;
    double tag = 0;
    std::multimap<double, Call*> calls;  // that wait, by order
    double waiting_cost = 0;
    double served_cost = 0;
    int served = 0;
    // Time used, with a weight that falls to 1/e in kMemory.
    double used = 0;
    double used_at = 0;
    std::list<Peer*>::iterator recent;
  };

  Peer* Find(std::uint64_t id, double now);
  static double Used(const Peer& peer, double now);
  // The same with what its calls in progress are expected to use.
  static double Asked(const Peer& peer, double now);
  void Use(Peer* peer, double used, double now);

  std::unordered_map<std::uint64_t, Peer> peers_;
  std::list<Peer*> recent_;                  // all, by their last use
  Peer* heaviest_ = nullptr;                 // who has used most, or null
  std::set<std::pair<double, Peer*>> line_;  // peers with calls, by tag
  double clock_ = 0;                         // the tag that was served last
  std::size_t waiting_ = 0;
  double waiting_cost_ = 0;
  std::size_t served_ = 0;
  double served_cost_ = 0;
  double used_ = 0;  // of all peers, as Peer::used
  double used_at_ = 0;
};

}  // namespace posenc::server
