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
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "grpcpp/server_builder.h"
#include "server/base/descriptor.h"
#include "server/listen/address.h"
#include "server/listen/connection_limits.h"
#include "server/listen/listening_socket.h"
#include "server/listen/peer.h"

namespace posenc::server {

// Why the listener ended a connection, or did not begin it.
enum class Ending {
  kAtCap,         // a newcomer: all places are taken
  kNoDescriptor,  // a newcomer: the process has no file descriptor left
  kNotReading,    // takes nothing, or too little, of what it is sent
  kTooManyCalls,  // has far more calls open than it was told
};
inline constexpr int kEndings = 4;

// "at_cap" and so on, for metrics.
inline constexpr const char* kEndingNames[kEndings] = {
    "at_cap", "no_descriptor", "not_reading", "too_many_calls"};

struct ConnectionCounts {
  std::int64_t open = 0;                          // now
  std::array<std::int64_t, kEndings> ended = {};  // by Ending
};

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

  // Whether calls wait for memory: peers over TCP that hold some by taking
  // little of what they are sent are ended then. Before Start().
  void SetMemoryIsShort(std::function<bool()> is_short) {
    memory_is_short_ = std::move(is_short);
  }

  // Begins to accept. The server that the acceptors belong to has started, and
  // is not shut down before Stop(). `tls`, if any, gets the connections over
  // TCP, and `plaintext` those of unix sockets.
  void Start(Acceptor plaintext, Acceptor tls);

  // Closes the listening sockets. May be called again.
  void Stop();

  // After Stop(): ends the connections that are still open.
  void EndConnections();

  // The rest is safe for any number of threads.

  // Ends the connection whose calls have this ServerContext::peer(). Does
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
    bool ended = false;        // by EndConnectionOf()
    // Bytes by which is told whether the peer takes what it is sent, and when
    // it did last.
    std::int64_t mark = 0;
    SteadyTime moved = std::chrono::steady_clock::now();
  };

  explicit Listener(const ConnectionLimits& limits);

  // All of it in thread_.
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
  // By the duplicate. Changed by thread_ alone, under the mutex.
  mutable std::mutex mutex_;
  absl::flat_hash_map<int, Connection> connections_;
  absl::flat_hash_map<Peer::HostBytes, std::int64_t> by_host_;
  Descriptor epoll_, wake_;
  // Closed to get a descriptor for a newcomer that must be refused.
  Descriptor spare_;
  SteadyTime looked_;
  std::atomic<bool> stop_{false};
  std::array<std::atomic<std::int64_t>, kEndings> ended_ = {};
  std::thread thread_;
};

}  // namespace posenc::server
