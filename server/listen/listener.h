// Accepts connections, and hands those over to gRPC that ask for something.
//
// gRPC 1.51's own listener accepts whatever comes, as many as come, and never
// accepts again once the process has run out of file descriptors. This one
// bounds connections in number and in time (ConnectionLimits):
//
//   accepted --> [ opening ] --first call's headers--> [ gRPC's ] --> closed
//                    |                                     |      by gRPC
//                    +-- too slow, foreign, or for room ---+
//
// - Over plaintext a connection is looked at without being read (MSG_PEEK), and
//   stays here until the headers of its first call are complete. A client that
//   waits for the server's settings gets them from here: the frame that gRPC
//   will send again.
// - Over TLS nothing can be seen. A connection goes to gRPC with its first
//   byte; gRPC bounds the handshake, and this the time to the first call.
// - gRPC then owns the descriptor, and closes it without a word. A connection
//   is remembered by its descriptor's number and the socket's inode.
//
// On unix sockets all peers have the same name. They count into the total, and
// all of their limits in time end with the first call's headers, but for one: a
// peer who takes nothing of what it is sent for the keepalive timeout is cut
// off, as the kernel does over TCP.

#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "grpcpp/server_builder.h"
#include "server/listen/address.h"
#include "server/listen/connection_counts.h"
#include "server/listen/connection_limits.h"
#include "server/listen/connections.h"
#include "server/base/descriptor.h"
#include "server/listen/listening_socket.h"

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
  // UNAVAILABLE if gRPC does not say how clients are to be greeted.
  absl::Status Start(Acceptor plaintext, Acceptor tls);

  // Closes the sockets. Connections that are not handed over are, if they have
  // sent their preface, so that gRPC tells them that the server goes; others
  // are closed. May be called again.
  void Stop();

  // After Stop(): ends the connections that gRPC has not closed.
  void CutConnections();

  // The rest is safe for any number of threads.

  // To be told of every call.
  Callers& callers() { return connections_.callers(); }

  // Connections beyond new caps are not ended.
  void SetCaps(std::int64_t connections, std::int64_t per_peer) {
    connections_.SetCaps(connections, per_peer);
  }

  ConnectionCounts counts() const;

 private:
  explicit Listener(const ConnectionLimits& limits);

  // All of it in thread_.
  void Run();
  void OnEvent(int fd, std::uint32_t events);
  void AcceptFrom(const ListeningSocket& socket);
  bool AcceptOne(const ListeningSocket& socket);
  void RefuseOne(const ListeningSocket& socket);
  void Admit(Descriptor fd, const ListeningSocket& socket,
             const std::optional<Peer>& peer);
  void Look(Connection* connection);
  void Greet(Connection* connection);
  void HandOver(Connection* connection);
  void Close(int fd);
  void EnforceLimits();
  void CutFrozen();
  std::optional<Ending> OverLimit(const Connection& connection) const;
  bool End(const Connection& connection, Ending ending);
  void SetPaused(bool paused);
  int TickMs() const;
  void CloseSockets();

  void Count(Ending ending) { ++ended_[static_cast<int>(ending)]; }

  const ConnectionLimits limits_;
  std::vector<std::string> addresses_;
  std::vector<ListeningSocket> sockets_;
  Connections connections_;
  Acceptor plaintext_, tls_;
  std::string greeting_;  // gRPC's SETTINGS
  Descriptor epoll_, wake_;
  // Closed to get a descriptor for a newcomer that must be refused.
  Descriptor spare_;
  bool paused_ = false;
  SteadyTime now_, ticked_, swept_;
  std::atomic<bool> stop_{false};
  std::atomic<std::int64_t> accepted_{0};
  std::array<std::atomic<std::int64_t>, kEndings> ended_ = {};
  std::thread thread_;
};

}  // namespace posenc::server
