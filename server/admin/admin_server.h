// The admin port: metrics, health, configuration and channelz over HTTP.
//
// libmicrohttpd has one thread for each socket, which shares nothing with
// gRPC's threads: it answers while calls keep those busy, and waits for no
// peer. A connection has one request and one response, with `timeout` for each;
// if there are too many connections, a new one ends the oldest. So a peer that
// stalls delays no other.
//
// The pages show the connections and the configuration, and change nothing. All
// who reach the address may read all pages: bind loopback, or an address that
// only the scraper reaches.

#pragma once

#include <condition_variable>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/admin/http.h"
#include "server/listen/listening_socket.h"

struct MHD_Daemon;
struct MHD_Connection;

namespace posenc::server {

struct AdminOptions {
  // The same forms as --listen: "host:port" (port 0: any free one),
  // "[::1]:port", "unix:/path".
  std::string address;
  // Host names, without port, that requests may use beside the host of
  // `address`, localhost and IP addresses.
  std::vector<std::string> hosts;
  // Time for a peer to send its request, and again to read the response.
  absl::Duration timeout = absl::Seconds(5);
};

class AdminServer final {
 public:
  static constexpr std::size_t kMaxConnections = 64;

  // Listens at once. INVALID_ARGUMENT for an address that cannot be parsed,
  // UNAVAILABLE if it cannot be bound (both name --admin). `pages` are called
  // until the server is destroyed.
  static absl::StatusOr<std::unique_ptr<AdminServer>> Start(
      const AdminOptions& options, AdminPages pages);

  // Ends all connections.
  ~AdminServer();
  AdminServer(const AdminServer&) = delete;
  AdminServer& operator=(const AdminServer&) = delete;

  // The address as bound: "127.0.0.1:40123", "unix:/run/admin.sock".
  const std::string& address() const { return address_; }

 private:
  struct Callbacks;

  struct Peer {
    int fd = -1;
    absl::Time since;  // when the request or the response began
  };

  AdminServer(AdminPages pages, std::vector<std::string> names,
              absl::Duration timeout)
      : http_(std::move(pages), std::move(names)), timeout_(timeout) {}

  // These run on libmicrohttpd's threads.
  void Opened(MHD_Connection* connection, int fd);
  void Closed(MHD_Connection* connection);
  bool Respond(MHD_Connection* connection, const AdminResponse& response);

  // Ends connections that take too long; runs on thread_.
  void Watch();

  const AdminHttp http_;
  const absl::Duration timeout_;
  std::string address_;
  std::vector<ListeningSocket> sockets_;
  std::vector<MHD_Daemon*> daemons_;  // one for each socket
  std::mutex mutex_;
  std::condition_variable stopped_;
  bool stop_ = false;                      // guarded by mutex_
  std::map<MHD_Connection*, Peer> peers_;  // likewise
  std::thread thread_;
};

}  // namespace posenc::server
