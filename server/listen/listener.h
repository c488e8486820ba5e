// Accepts connections, hands each to gRPC at once, and bounds their number.
//
// gRPC 1.51's own listener accepts as many as come, and never accepts again
// once the process has run out of file descriptors.
//
// gRPC owns the descriptor that it is given. The listener keeps a duplicate:
// when gRPC is done with a connection it shuts the socket down, and when the
// peer is, the socket is hung up; the duplicate's epoll event tells of both. By
// the duplicate the listener ends a connection, too.
//
// Peers on unix sockets have no name. They count into the total alone.

#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "grpcpp/server_builder.h"
#include "server/base/descriptor.h"
#include "server/listen/address.h"
#include "server/listen/connection_counts.h"
#include "server/listen/connection_limits.h"
#include "server/listen/listening_socket.h"
#include "server/listen/peer.h"

namespace posenc::server {

class Listener {
 public:
  using Acceptor =
      std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor>;

  // Binds, and accepts nothing yet. UNAVAILABLE if an address cannot be bound.
  // limits: checked, and with defaults filled in.
  static absl::StatusOr<std::unique_ptr<Listener>> Bind(
      const std::vector<Address>& addresses, const ConnectionLimits& limits);

  ~Listener();

  // As bound, with real ports.
  const std::vector<std::string>& addresses() const { return addresses_; }

  // Begins to accept. The server that the acceptors belong to has started, and
  // is not shut down before Stop(). `tls`, if any, gets the connections over
  // TCP, and `plaintext` those of unix sockets.
  void Start(Acceptor plaintext, Acceptor tls);

  // Closes the listening sockets. May be called again.
  void Stop();

  // After Stop(): ends the connections that are still open.
  void EndConnections();

  // The rest is safe for any number of threads.

  // Ends the connection whose calls have this ServerContext::peer(), soon. Does
  // nothing for peers on unix sockets.
  void EndConnectionOf(absl::string_view peer);

  // Connections beyond new caps are not ended.
  void SetCaps(std::int64_t connections, std::int64_t per_peer) {
    cap_.store(connections);
    cap_per_host_.store(per_peer);
  }

  ConnectionCounts counts() const;

 private:
  using SteadyTime = std::chrono::steady_clock::time_point;

  struct Connection {
    Descriptor fd;             // the duplicate
    std::optional<Peer> peer;  // none on a unix socket
    // Of a unix socket: what BlockedBytes() said last, and since when.
    std::int64_t blocked = 0;
    SteadyTime blocked_since;
  };

  explicit Listener(const ConnectionLimits& limits);

  // All of it in thread_.
  void Run();
  void OnEvent(int fd);
  void AcceptFrom(const ListeningSocket& socket);
  bool AcceptOne(const ListeningSocket& socket);
  void RefuseOne(const ListeningSocket& socket);
  void Admit(Descriptor fd, const ListeningSocket& socket,
             const std::optional<Peer>& peer);
  bool AtCap(const std::optional<Peer>& peer) const;
  void Forget(int fd);
  void Tick();
  void EndBlocked();
  void EndNamed();
  void SetPaused(bool paused);
  void Count(Ending ending) { ++ended_[static_cast<int>(ending)]; }

  const ConnectionLimits limits_;
  std::atomic<std::int64_t> cap_, cap_per_host_;
  std::vector<std::string> addresses_;
  std::vector<ListeningSocket> sockets_;
  Acceptor plaintext_, tls_;
  absl::flat_hash_map<int, Connection> connections_;  // by the duplicate
  absl::flat_hash_map<Peer::HostBytes, std::int64_t> by_host_;
  Descriptor epoll_, wake_;
  // Closed to get a descriptor for a newcomer that must be refused.
  Descriptor spare_;
  bool paused_ = false;
  SteadyTime now_, ticked_;
  std::atomic<bool> stop_{false};
  std::atomic<std::int64_t> open_{0}, accepted_{0};
  std::array<std::atomic<std::int64_t>, kEndings> ended_ = {};
  std::mutex mutex_;
  std::vector<Peer> to_end_;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace posenc::server
