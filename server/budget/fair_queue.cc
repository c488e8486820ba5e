#include "server/budget/fair_queue.h"

#include <algorithm>
#include <cmath>

namespace posenc::server {
namespace {

// Seconds. Short enough that a client that stops is soon like any other, long
// enough to hold many calls of milliseconds.
constexpr double kMemory = 1;

// Peers that are idle for so many seconds are like new ones.
constexpr double kIdle = 2;

// A light peer uses less than the first part of an equal share, or less than an
// equal share if somebody uses more than the second. Either alone would not do:
// what a call uses is measured by what it shares with others in service, too
// high for short calls among long ones; and where all ask for the same, half of
// them are always a little below the mean.
constexpr double kLightPart = 0.5;
constexpr double kHeavyPart = 2;
// An equal share counts as this many seconds divided by the peers, at least:
// the shares of the first tenths of a second say little. A least share that did
// not depend on the number of peers would make nearly all of many peers light,
// as soon as one had used twice its share; their calls wait for each other
// then.
constexpr double kLittle = 0.1;

}  // namespace

FairQueue::Peer* FairQueue::Find(std::uint64_t id, double now) {
  Forget(now);
  const auto [found, is_new] = peers_.try_emplace(id);
  Peer* const peer = &found->second;
  if (is_new) {
    peer->id = id;
    peer->tag = clock_;
    peer->used_at = now;
    peer->recent = recent_.insert(recent_.end(), peer);
  }
  return peer;
}

void FairQueue::Forget(double now) {
  while (!recent_.empty()) {
    Peer* const oldest = recent_.front();
    if (oldest->used_at > now - kIdle) return;
    if (oldest->served > 0 || !oldest->calls.empty()) {
      Use(oldest, 0, now);
      continue;
    }
    recent_.pop_front();
    if (oldest == heaviest_) heaviest_ = nullptr;
    peers_.erase(oldest->id);
  }
}

double FairQueue::Used(const Peer& peer, double now) {
  return peer.used * std::exp((peer.used_at - now) / kMemory);
}

double FairQueue::Asked(const Peer& peer, double now) {
  return Used(peer, now) + peer.served_cost + peer.waiting_cost;
}

void FairQueue::Use(Peer* peer, double used, double now) {
  peer->used = Used(*peer, now) + used;
  peer->used_at = now;
  recent_.splice(recent_.end(), recent_, peer->recent);
  if (heaviest_ == nullptr || Used(*heaviest_, now) < peer->used) {
    heaviest_ = peer;
  }
  used_ = used_ * std::exp((used_at_ - now) / kMemory) + used;
  used_at_ = now;
}

void FairQueue::Push(Call* call, double now) {
  Peer* const peer = Find(call->peer, now);
  if (peer->calls.empty()) {
    peer->tag = std::max(peer->tag, clock_);
    line_.emplace(peer->tag, peer);
  }
  call->from = peer;
  call->place = peer->calls.emplace(call->order, call);
  peer->waiting_cost += call->cost;
  waiting_cost_ += call->cost;
  ++waiting_;
}

void FairQueue::Remove(Call* call) {
  Peer* const peer = call->from;
  peer->calls.erase(call->place);
  peer->waiting_cost -= call->cost;
  waiting_cost_ -= call->cost;
  --waiting_;
  // Sums of differences drift; an empty queue is the moment to correct them.
  if (waiting_ == 0) waiting_cost_ = 0;
  if (peer->calls.empty()) {
    peer->waiting_cost = 0;
    line_.erase({peer->tag, peer});
  }
}

FairQueue::Call* FairQueue::Front() const {
  return line_.empty() ? nullptr : line_.begin()->second->calls.begin()->second;
}

void FairQueue::Start(Call* call, double now) {
  Peer* const peer = Find(call->peer, now);
  call->from = peer;
  const bool in_line = !peer->calls.empty();
  if (in_line) line_.erase({peer->tag, peer});
  peer->tag = std::max(peer->tag, clock_);
  clock_ = peer->tag;
  peer->tag += call->cost;
  if (in_line) line_.emplace(peer->tag, peer);
  ++peer->served;
  peer->served_cost += call->cost;
  ++served_;
  served_cost_ += call->cost;
}

void FairQueue::End(Call* call, double used, double now) {
  Peer* const peer = call->from;
  const bool in_line = !peer->calls.empty();
  if (in_line) line_.erase({peer->tag, peer});
  peer->tag += used - call->cost;
  if (in_line) line_.emplace(peer->tag, peer);
  --peer->served;
  peer->served_cost = peer->served == 0 ? 0 : peer->served_cost - call->cost;
  --served_;
  served_cost_ = served_ == 0 ? 0 : served_cost_ - call->cost;
  Use(peer, used, now);
}

// While this peer's calls up to this one are served, every other peer that
// waits gets as much, and no peer more than it waits for.
double FairQueue::Ahead(const Call& call) const {
  const auto found = peers_.find(call.peer);
  double own = 0, later = 0;
  bool waits = false;
  if (found != peers_.end()) {
    const Peer& peer = found->second;
    waits = !peer.calls.empty();
    if (!waits || peer.calls.rbegin()->first <= call.order) {
      own = peer.waiting_cost;
    } else {
      for (const auto& [order, other] : peer.calls) {
        if (order > call.order) break;
        own += other->cost;
      }
      later = peer.waiting_cost - own;
    }
  }
  const double peers = static_cast<double>(line_.size() + (waits ? 0 : 1));
  return std::min(waiting_cost_ - later, own + (own + call.cost) * (peers - 1));
}

bool FairQueue::Light(std::uint64_t id, double now) {
  Forget(now);
  const auto found = peers_.find(id);
  const bool is_new = found == peers_.end();
  const auto peers = static_cast<double>(peers_.size() + (is_new ? 1 : 0));
  if (peers < 2) return false;
  // With the calls in progress: who begins now has not used anything yet.
  const double all = used_ * std::exp((used_at_ - now) / kMemory) +
                     waiting_cost_ + served_cost_;
  const double own = is_new ? 0 : Asked(found->second, now);
  const double part = all / peers;
  return own < kLightPart * part ||
         (own < std::max(all, kLittle) / peers && heaviest_ != nullptr &&
          Asked(*heaviest_, now) > kHeavyPart * part);
}

}  // namespace posenc::server
