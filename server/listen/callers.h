// Which connections have begun a call, or more than they may.
//
// gRPC names a call's connection by its peer only, so connections over TCP are
// known by the peer's address and port.

#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "server/listen/peer.h"

namespace posenc::server {

// Safe for any number of threads.
class Callers {
 public:
  enum class Calls { kNone, kSome, kTooMany };
  using Mark = std::shared_ptr<std::atomic<Calls>>;

  // A new connection, which has begun no call. Replaces one of the same peer,
  // which must be gone.
  Mark Add(const Peer& peer);

  // The connection is gone. Does nothing if another has replaced it.
  void Remove(const Peer& peer, const Mark& mark);

  // A call has begun whose ServerContext::peer() is `peer`; called for every
  // call (0.2 us). Peers that were not added are ignored.
  void CallBegan(absl::string_view peer) { Raise(peer, Calls::kSome); }
  // A call has begun that is one too many; the connection is to be ended.
  void CallWasTooMany(absl::string_view peer) { Raise(peer, Calls::kTooMany); }

 private:
  void Raise(absl::string_view peer, Calls calls);

  struct Shard {
    std::mutex mutex;
    absl::flat_hash_map<Peer, Mark> marks;  // guarded by mutex
  };
  Shard& ShardOf(const Peer& peer) {
    return shards_[peer.port % shards_.size()];
  }

  std::array<Shard, 16> shards_;
};

}  // namespace posenc::server
