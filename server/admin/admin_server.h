// The admin port: metrics, health, configuration and channelz over HTTP.
//
// libmicrohttpd serves all connections of a listening socket on one thread.
// This thread shares nothing with gRPC's threads, so it answers even while
// gRPC's threads are busy with calls. It does not wait for slow peers. Each
// connection has one request and one response.
//
// The pages show connections and configuration, and cannot change anything.
// Everybody who can reach the address may read all pages. So the address should
// be loopback, or an address that only the scraper can reach.

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/admin/http.h"
#include "server/transport/listening_socket.h"

struct MHD_Daemon;

namespace posenc::server {

struct AdminOptions {
  // An address in a form of --listen, such as "host:port" (port 0 is any free
  // port), "[::1]:port" or "unix:/path".
  std::string address;
  // Further host names, without port, that a request's Host header may have.
  // The host of `address`, localhost and IP addresses are always allowed.
  std::vector<std::string> hosts;
  // Time after which the connection of a silent peer is closed.
  unsigned timeout_seconds = 5;
};

class AdminServer final {
 public:
  // The server listens when this function returns. Returns INVALID_ARGUMENT if
  // the address cannot be parsed, and UNAVAILABLE if it cannot be bound; the
  // messages name --admin. `pages` are called until the server is destroyed.
  static absl::StatusOr<std::unique_ptr<AdminServer>> Start(
      const AdminOptions& options, AdminPages pages);

  // Ends all connections.
  ~AdminServer();
  AdminServer(const AdminServer&) = delete;
  AdminServer& operator=(const AdminServer&) = delete;

  // The bound address: "127.0.0.1:40123", "unix:/run/admin.sock".
  const std::string& address() const { return address_; }

 private:
  AdminServer(AdminPages pages, std::vector<std::string> names)
      : http_(std::move(pages), std::move(names)) {}

  AdminHttp http_;
  std::string address_;
  std::vector<ListeningSocket> sockets_;
  std::vector<MHD_Daemon*> daemons_;  // one for each socket
};

}  // namespace posenc::server
