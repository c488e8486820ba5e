// Accepts connections, hands them to gRPC immediately, and limits their number.
//
// gRPC 1.51's own listener has no limit. After the process has run out of file
// descriptors, that listener never accepts a connection again.
//
// gRPC owns the descriptor that it gets. The listener keeps a duplicate, to end
// the connection and to notice its end. epoll reports a hang-up of the
// duplicate when gRPC shuts the socket down or the peer leaves.

#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "grpcpp/server_builder.h"
#include "server/base/descriptor.h"
#include "server/transport/address.h"
#include "server/transport/connection_limits.h"
#include "server/transport/listening_socket.h"
#include "server/transport/peer.h"

namespace posenc::server {

// The reason why the listener ended or refused a connection.
enum class Ending {
  kAtCap,         // new connection: the limit is reached
  kNoDescriptor,  // new connection: no file descriptor is left
  kNotReading,    // the peer takes no bytes, or too few
  kTooManyCalls,  // the peer has far more calls open than allowed
};
inline constexpr int kEndings = 4;

// Names for metrics.
inline constexpr const char* kEndingNames[kEndings] = {
    "at_cap", "no_descriptor", "not_reading", "too_many_calls"};

struct ConnectionCounts {
  std::int64_t open = 0;                          // connections that are open
  std::array<std::int64_t, kEndings> ended = {};  // their number, by Ending
};

class Listener {
 public:
  using Acceptor =
      std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor>;

  // Binds the addresses, but accepts no connections yet. Returns UNAVAILABLE if
  // an address cannot be bound. `limits` must be valid and contain no 0.
  static absl::StatusOr<std::unique_ptr<Listener>> Bind(
      const std::vector<Address>& addresses, const ConnectionLimits& limits);

  ~Listener();

  // Returns the bound addresses, with real ports.
  const std::vector<std::string>& addresses() const { return addresses_; }

  // Sets a function that returns whether calls wait for memory. While it
  // returns true, the listener ends the connections of TCP peers that read too
  // slowly. Must be called before Start().
  void SetMemoryIsShort(std::function<bool()> is_short) {
    memory_is_short_ = std::move(is_short);
  }

  // Begins to accept connections. The acceptors' server must have started, and
  // must not be shut down before Stop(). `tls` gets the TCP connections, and
  // `plaintext` the connections of unix sockets. If `tls` is null, `plaintext`
  // gets all connections.
  void Start(Acceptor plaintext, Acceptor tls);

  // Closes the listening sockets. May be called more than once.
  void Stop();

  // Ends the connections that are still open. Must be called after Stop().
  void EndConnections();

  // The functions below are safe for any number of threads.

  // Ends the connection of this peer (ServerContext::peer() of its calls). Does
  // nothing for peers on unix sockets.
  void EndConnectionOf(absl::string_view peer);

  // Sets new limits. Existing connections beyond the new limits are not ended.
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
    bool ended = false;        // by EndConnectionOf()
    // The number of bytes that Takes() has noted. Over TCP, the peer has taken
    // these bytes. Over a unix socket, it has not read them yet.
    std::int64_t mark = 0;
    // The last time when the peer took bytes.
    SteadyTime moved = std::chrono::steady_clock::now();
  };

  explicit Listener(const ConnectionLimits& limits);

  // These functions run on thread_.
  void Run();
  bool Watch(int fd, std::uint32_t events);
  void OnEvent(int fd);
  bool AcceptOne(const ListeningSocket& socket);
  bool RefuseOne(const ListeningSocket& socket);
  void Admit(Descriptor fd, const ListeningSocket& socket,
             const std::optional<Peer>& peer);
  bool AtCap(const std::optional<Peer>& peer) const;
  void Forget(int fd);
  void EndBlocked();
  void Count(Ending ending) { ++ended_[static_cast<int>(ending)]; }

  const ConnectionLimits limits_;
  std::function<bool()> memory_is_short_;
  std::atomic<std::int64_t> cap_, cap_per_host_;
  std::vector<std::string> addresses_;
  std::vector<ListeningSocket> sockets_;
  Acceptor plaintext_, tls_;
  // Connections, by the number of the duplicate descriptor. Only thread_
  // changes the map, and locks the mutex for a change.
  mutable std::mutex mutex_;
  absl::flat_hash_map<int, Connection> connections_;
  absl::flat_hash_map<Peer::HostBytes, std::int64_t> by_host_;
  Descriptor epoll_, wake_;
  // This descriptor is closed if no other descriptor is left, so that a
  // connection can be accepted and refused.
  Descriptor spare_;
  SteadyTime checked_;
  std::atomic<bool> stop_{false};
  std::array<std::atomic<std::int64_t>, kEndings> ended_ = {};
  std::thread thread_;
};

}  // namespace posenc::server
