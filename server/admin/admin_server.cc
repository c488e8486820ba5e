#include "server/admin/admin_server.h"

#include <fcntl.h>
#include <microhttpd.h>
#include <unistd.h>

#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "core/base/status_macros.h"
#include "server/transport/address.h"

namespace posenc::server {
namespace {

// Limit for the size of a request's line and headers together.
constexpr std::size_t kConnectionBytes = 16 << 10;
constexpr unsigned kMostConnections = 256;
// Limit for the connections of one IP address, so that its unfinished requests
// cannot block probes from other addresses.
constexpr unsigned kMostOfAddress = 32;

MHD_Result AddHost(void* request, MHD_ValueKind /*kind*/, const char* name,
                   const char* value) {
  if (absl::EqualsIgnoreCase(name, "Host")) {
    static_cast<AdminRequest*>(request)->hosts.emplace_back(
        value == nullptr ? "" : value);
  }
  return MHD_YES;
}

// Leaves `text` unchanged, so that libmicrohttpd does not unescape paths. Paths
// are compared in the form in which they arrived.
std::size_t KeepEscapes(void* /*unused*/, MHD_Connection* /*connection*/,
                        char* text) {
  return std::strlen(text);
}

MHD_Result Respond(MHD_Connection* connection, const AdminResponse& response) {
  const std::unique_ptr<MHD_Response, void (*)(MHD_Response*)> made(
      MHD_create_response_from_buffer(response.body.size(),
                                      const_cast<char*>(response.body.data()),
                                      MHD_RESPMEM_MUST_COPY),
      &MHD_destroy_response);
  if (made == nullptr) return MHD_NO;
  for (const auto& [name, value] : response.headers) {
    MHD_add_response_header(made.get(), name.c_str(), value.c_str());
  }
  MHD_add_response_header(made.get(), "Connection", "close");
  return MHD_queue_response(connection, static_cast<unsigned>(response.status),
                            made.get());
}

// Answers a request when its head has arrived, without waiting for a body.
MHD_Result Access(void* http, MHD_Connection* connection, const char* url,
                  const char* method, const char* version, const char* /*data*/,
                  std::size_t* /*size*/, void** /*context*/) {
  try {
    AdminRequest request{method, url, version, {}};
    MHD_get_connection_values(connection, MHD_HEADER_KIND, &AddHost, &request);
    return Respond(connection, static_cast<AdminHttp*>(http)->Answer(request));
  } catch (...) {
    return MHD_NO;  // out of memory: closes this connection
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<AdminServer>> AdminServer::Start(
    const AdminOptions& options, AdminPages pages) {
  ASSIGN_OR_RETURN(const Address address,
                   ParseAddress(options.address, "--admin"));
  std::vector<std::string> names = options.hosts;
  names.push_back(address.host);
  // std::make_unique cannot call the private constructor.
  std::unique_ptr<AdminServer> server(
      new AdminServer(std::move(pages), std::move(names)));
  RETURN_IF_ERROR(Bind(address, &server->sockets_, &server->address_));
  for (const ListeningSocket& socket : server->sockets_) {
    // libmicrohttpd closes the descriptor that it gets, so it gets a copy.
    const int fd = fcntl(socket.fd(), F_DUPFD_CLOEXEC, 0);
    MHD_Daemon* const daemon = MHD_start_daemon(
        MHD_USE_AUTO_INTERNAL_THREAD, 0, nullptr, nullptr, &Access,
        &server->http_, MHD_OPTION_LISTEN_SOCKET, fd,
        MHD_OPTION_CONNECTION_LIMIT, kMostConnections,
        MHD_OPTION_PER_IP_CONNECTION_LIMIT, kMostOfAddress,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, kConnectionBytes,
        MHD_OPTION_CONNECTION_TIMEOUT, options.timeout_seconds,
        MHD_OPTION_UNESCAPE_CALLBACK, &KeepEscapes, nullptr, MHD_OPTION_END);
    if (daemon == nullptr) {
      if (fd >= 0) close(fd);
      return absl::UnavailableError("--admin: libmicrohttpd cannot start");
    }
    server->daemons_.push_back(daemon);
  }
  return server;
}

AdminServer::~AdminServer() {
  for (MHD_Daemon* const daemon : daemons_) MHD_stop_daemon(daemon);
}

}  // namespace posenc::server
