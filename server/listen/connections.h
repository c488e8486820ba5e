// The connections that a listener has accepted, and which of them to give up.

#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "server/listen/callers.h"
#include "server/listen/opening.h"
#include "server/listen/peer.h"

namespace posenc::server {

// Clocks may be set; limits in time must not follow.
using SteadyTime = std::chrono::steady_clock::time_point;

struct Connection {
  int fd = -1;
  // Tells this socket from a later one of the same number: gRPC closes
  // descriptors without saying so. Inodes are unique among living sockets.
  ino_t inode = 0;
  std::optional<Peer> peer;  // none on a unix socket
  SteadyTime accepted;
  bool tls = false;
  // gRPC owns the descriptor.
  bool handed_over = false;
  // Until then: what the peer has sent, since when it is part of a call, and
  // whether it has got our settings.
  Opening opening = Opening::kPreface;
  SteadyTime part_of_call_since;
  bool greeted = false;
  Callers::Mark mark;  // null on a unix socket
  // Of a unix socket: what BlockedBytes() said last, and since when.
  std::int64_t blocked = 0;
  SteadyTime blocked_since;

  // A unix socket's connections are handed over with their first call.
  bool HasCalled() const {
    return handed_over &&
           (mark == nullptr || mark->load() != Callers::Calls::kNone);
  }
  bool CallsTooMuch() const {
    return mark != nullptr && mark->load() == Callers::Calls::kTooMany;
  }
};

// For one thread, but for SetCaps(), open() and the callers.
class Connections {
 public:
  Connections(std::int64_t cap, std::int64_t cap_per_host);

  void SetCaps(std::int64_t cap, std::int64_t cap_per_host);
  std::int64_t open() const { return open_.load(); }
  Callers& callers() { return callers_; }

  // Whether there is room for a connection of `peer`, once old ones have been
  // ended by `end`, which returns whether it could. Those are forgotten.
  bool MakeRoom(const std::optional<Peer>& peer, SteadyTime now,
                const std::function<bool(const Connection&)>& end);

  // The connection stays where it is until it is forgotten.
  Connection* Add(Connection connection);
  Connection* Find(int fd);
  void Forget(int fd);

  // Forgets connections that gRPC has closed.
  void Sweep(SteadyTime now);

  // Calls `visit` for every connection, the oldest first, which may return
  // true: the connection is to be forgotten.
  void Visit(const std::function<bool(Connection&)>& visit);

 private:
  using Host = std::array<std::uint8_t, 16>;
  using Table = std::map<std::uint64_t, Connection>;  // by age

  Table::iterator Erase(Table::iterator at);
  bool Full() const;
  bool HostFull(const std::optional<Peer>& peer) const;

  std::atomic<std::int64_t> cap_;
  std::atomic<std::int64_t> cap_per_host_;
  std::atomic<std::int64_t> open_{0};
  Callers callers_;
  Table table_;
  absl::flat_hash_map<int, Table::iterator> by_fd_;
  absl::flat_hash_map<Host, std::int64_t> by_host_;
  std::uint64_t next_ = 0;
  SteadyTime swept_;
};

// Whether the descriptor is still this connection's.
bool IsOpen(const Connection& connection);

// What the peer of a unix socket has not read yet, as the kernel counts it, if
// so much waits that the socket takes no more; else 0. While it stays the same,
// the peer reads nothing: the socket takes more only once three quarters are
// read.
std::int64_t BlockedBytes(int fd);

// Ends a connection whose descriptor gRPC owns: gRPC sees the peer leave. Does
// no harm if gRPC has closed it already, even if its number is in use again.
// False if there is no descriptor left for doing so.
bool CutHandedOver(const Connection& connection);

}  // namespace posenc::server
