// The admin port: metrics, health, configuration and channelz over HTTP, and
// the explorer.
//
// One thread of its own, which shares nothing with gRPC's: it answers while
// calls keep those busy. Only the explorer's calls go through gRPC, from
// threads of their own. It never waits for a peer: sockets do not block, each
// connection has a request, a response and its end in time, and if there are
// too many, a new one closes the oldest that has not asked for anything. A peer
// that stalls therefore keeps nobody from being answered.
//
// It shows who is connected and how the server is set up, and changes nothing.
// Whoever reaches the address may read all of it: bind loopback, or an address
// that only the scraper reaches.

#pragma once

#include <atomic>
#include <cstddef>
#include <list>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/admin/connection.h"
#include "server/admin/http.h"

namespace posenc::server {

struct AdminOptions {
  // As --listen: "host:port" (port 0: any free one), "[::1]:port",
  // "unix:/path".
  std::string address;
  // Names by which the server may be asked, beside that of `address`, localhost
  // and IP addresses; without port.
  std::vector<std::string> hosts;
  // For a peer to send its request, and again to read the response.
  absl::Duration timeout = absl::Seconds(5);
};

class AdminServer final : private AdminAnswers {
 public:
  static constexpr std::size_t kMaxConnections = 64;
  // Calls of the explorer at a time, their bodies included: two a core.
  static int MostCalls();

  // Listens at once. INVALID_ARGUMENT for an address that is none, UNAVAILABLE
  // if it cannot be bound (both name --admin). `pages` are called until the
  // server is destroyed.
  static absl::StatusOr<std::unique_ptr<AdminServer>> Start(
      const AdminOptions& options, AdminPages pages);

  // Ends its connections.
  ~AdminServer() override;
  AdminServer(const AdminServer&) = delete;
  AdminServer& operator=(const AdminServer&) = delete;

  // Ends the explorer's calls, and refuses new ones (CallWorkers::Stop). The
  // other pages stay.
  void StopCalls();

  // As bound: "127.0.0.1:40123", "unix:/run/admin.sock".
  const std::string& address() const { return address_; }

 private:
  AdminServer(AdminPages pages, std::vector<std::string> names,
              absl::Duration timeout)
      : http_(std::move(pages), std::move(names)), timeout_(timeout) {}

  // Refuses a call if there are too many already.
  Reaction React(absl::string_view head) override;
  std::shared_ptr<WaitingCall> Start(JsonCall call, std::string body) override;

  void Run();
  void Wake();
  // Waits until something can be done.
  void Poll();
  void AdvanceAll();
  void Accept(absl::Time now);
  // Closes a connection, so that a new one has its place. False if there is
  // none.
  bool CloseOne();
  // Takes a descriptor in reserve, if none is.
  void TakeSpare();

  AdminHttp http_;
  const absl::Duration timeout_;
  std::string address_;
  std::string unix_path_;  // to be removed in the end
  int listener_ = -1;
  int wake_ = -1;  // an eventfd: written to end the thread, or for an answer
  // Given up for a connection if the process has no descriptor left: the admin
  // port should answer just then.
  int spare_ = -1;
  // Until then nothing is accepted, because no descriptor was left.
  absl::Time accept_again_ = absl::InfinitePast();
  std::atomic<bool> stop_{false};
  std::list<AdminConnection> connections_;  // the oldest first
  std::unique_ptr<CallWorkers> workers_;    // null without an explorer
  std::thread thread_;
};

}  // namespace posenc::server
