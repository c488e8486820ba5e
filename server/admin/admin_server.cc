#include "server/admin/admin_server.h"

#include <fcntl.h>
#include <microhttpd.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "server/base/steady_time.h"
#include "server/listen/address.h"

namespace posenc::server {
namespace {

// Limit for the bytes of a request's line and headers together.
constexpr std::size_t kConnectionBytes = 16 << 10;
// More than kMaxConnections, because ending connections count, too.
constexpr unsigned kMostSockets = 256;

MHD_Result AddHost(void* request, MHD_ValueKind /*kind*/, const char* name,
                   const char* value) {
  if (absl::EqualsIgnoreCase(name, "Host")) {
    static_cast<AdminRequest*>(request)->hosts.emplace_back(
        value == nullptr ? "" : value);
  }
  return MHD_YES;
}

// libmicrohttpd must not unescape paths: they are compared as they came.
std::size_t KeepEscapes(void* /*unused*/, MHD_Connection* /*connection*/,
                        char* text) {
  return std::strlen(text);
}

}  // namespace

// libmicrohttpd calls these functions. They must not throw through it.
struct AdminServer::Callbacks {
  // Answers a request once its head has come, without waiting for a body.
  static MHD_Result Access(void* server, MHD_Connection* connection,
                           const char* url, const char* method,
                           const char* version, const char* /*data*/,
                           std::size_t* /*size*/, void** /*context*/) {
    try {
      auto* const self = static_cast<AdminServer*>(server);
      AdminRequest request{method, url, version, {}};
      MHD_get_connection_values(connection, MHD_HEADER_KIND, &AddHost,
                                &request);
      return self->Respond(connection, self->http_.Answer(request)) ? MHD_YES
                                                                    : MHD_NO;
    } catch (...) {
      return MHD_NO;  // out of memory: closes this connection
    }
  }

  static void Notify(void* server, MHD_Connection* connection,
                     void** /*context*/, MHD_ConnectionNotificationCode what) {
    auto* const self = static_cast<AdminServer*>(server);
    if (what == MHD_CONNECTION_NOTIFY_CLOSED) return self->Closed(connection);
    const MHD_ConnectionInfo* const info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    if (info != nullptr) self->Opened(connection, info->connect_fd);
  }
};

absl::StatusOr<std::unique_ptr<AdminServer>> AdminServer::Start(
    const AdminOptions& options, AdminPages pages) {
  const absl::StatusOr<Address> address =
      ParseAddress(options.address, "--admin");
  if (!address.ok()) return address.status();
  std::vector<std::string> names = options.hosts;
  names.push_back(address->host);
  // std::make_unique cannot call the private constructor.
  std::unique_ptr<AdminServer> server(
      new AdminServer(std::move(pages), std::move(names), options.timeout));
  const absl::Status bound =
      Bind(*address, &server->sockets_, &server->address_);
  if (!bound.ok()) return bound;
  for (const ListeningSocket& socket : server->sockets_) {
    // libmicrohttpd closes the descriptor that it gets, so it gets a copy.
    const int fd = fcntl(socket.fd(), F_DUPFD_CLOEXEC, 0);
    MHD_Daemon* const daemon = MHD_start_daemon(
        MHD_USE_AUTO_INTERNAL_THREAD, 0, nullptr, nullptr, &Callbacks::Access,
        server.get(), MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT,
        kMostSockets, MHD_OPTION_CONNECTION_MEMORY_LIMIT, kConnectionBytes,
        MHD_OPTION_UNESCAPE_CALLBACK, &KeepEscapes, nullptr,
        MHD_OPTION_NOTIFY_CONNECTION, &Callbacks::Notify, server.get(),
        MHD_OPTION_END);
    if (daemon == nullptr) {
      if (fd >= 0) close(fd);
      return absl::UnavailableError("--admin: libmicrohttpd cannot start");
    }
    server->daemons_.push_back(daemon);
  }
  server->thread_ = std::thread([raw = server.get()] { raw->Watch(); });
  return server;
}

AdminServer::~AdminServer() {
  for (MHD_Daemon* const daemon : daemons_) MHD_stop_daemon(daemon);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
  }
  stopped_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void AdminServer::Opened(MHD_Connection* connection, int fd) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (peers_.size() >= kMaxConnections) {
    const auto oldest = std::min_element(
        peers_.begin(), peers_.end(), [](const auto& a, const auto& b) {
          return a.second.since < b.second.since;
        });
    shutdown(oldest->second.fd, SHUT_RDWR);
    // The next new connection ends another one.
    oldest->second.since = absl::InfiniteFuture();
  }
  peers_[connection] = {fd, SteadyNow()};
}

void AdminServer::Closed(MHD_Connection* connection) {
  const std::lock_guard<std::mutex> lock(mutex_);
  peers_.erase(connection);
}

bool AdminServer::Respond(MHD_Connection* connection,
                          const AdminResponse& response) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    peers_[connection].since = SteadyNow();
  }
  const std::unique_ptr<MHD_Response, void (*)(MHD_Response*)> made(
      MHD_create_response_from_buffer(response.body.size(),
                                      const_cast<char*>(response.body.data()),
                                      MHD_RESPMEM_MUST_COPY),
      &MHD_destroy_response);
  if (made == nullptr) return false;
  for (const auto& [name, value] : response.headers) {
    MHD_add_response_header(made.get(), name.c_str(), value.c_str());
  }
  MHD_add_response_header(made.get(), "Connection", "close");
  return MHD_queue_response(connection, static_cast<unsigned>(response.status),
                            made.get()) == MHD_YES;
}

// libmicrohttpd's own timeout counts seconds of silence: a peer that sends a
// byte now and then would stay.
void AdminServer::Watch() {
  pthread_setname_np(pthread_self(), "admin-watch");
  std::unique_lock<std::mutex> lock(mutex_);
  while (!stop_) {
    const absl::Time now = SteadyNow();
    for (auto& [connection, peer] : peers_) {
      if (now - peer.since >= timeout_) {
        shutdown(peer.fd, SHUT_RDWR);
      }
    }
    stopped_.wait_for(lock, absl::ToChronoNanoseconds(timeout_ / 8));
  }
}

}  // namespace posenc::server
