// Makes the answers to the admin server's requests. Uses no sockets.

#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace posenc::server {

// Functions that make the admin server's pages. They may run concurrently on
// several threads of the server. They must return within milliseconds, because
// their thread answers no other request during this time. An exception becomes
// status 500.
struct AdminPages {
  std::function<std::string()> metrics;  // /metrics
  std::function<std::string()> config;   // /config; without secrets
  std::function<bool()> ready;           // /readyz: 200 or 503
};

// The parts of a request's head that the answer depends on.
struct AdminRequest {
  std::string method, path, version;  // "GET", "/metrics", "HTTP/1.1"
  std::vector<std::string> hosts;     // values of its Host headers
};

struct AdminResponse {
  int status = 200;
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers;
};

// Returns whether the value of a Host header is an IP address, localhost or one
// of `names` (compared without case), each with or without a port.
//
// This prevents DNS rebinding. In this attack, the name of a web page gets the
// address of a server that only the visitor can reach, and the visitor's
// browser sends the page's requests to that server. These requests have the
// page's name as Host, so the server can refuse them. An IP address as Host is
// safe, because it is no name that can be rebound. Prometheus and kubelet use
// IP addresses.
bool HostAllowed(absl::string_view host, const std::vector<std::string>& names);

// Returns a page of gRPC's channelz, which describes the servers and sockets of
// this process, as JSON. The paths are /channelz, /channelz/servers,
// /channelz/server/ID[/sockets] and /channelz/socket/ID. Lists have at most 100
// entries. Returns NOT_FOUND for any other path and for an unknown ID. gRPC
// must have been initialised.
absl::StatusOr<std::string> ChannelzPage(absl::string_view path);

class AdminHttp {
 public:
  // `names` are the names for HostAllowed().
  AdminHttp(AdminPages pages, std::vector<std::string> names)
      : pages_(std::move(pages)), names_(std::move(names)) {}

  // Returns the answer to a request, and ignores the request's body. Never
  // throws.
  AdminResponse Answer(const AdminRequest& request) const;

 private:
  AdminResponse Page(const AdminRequest& request) const;

  const AdminPages pages_;
  const std::vector<std::string> names_;
};

}  // namespace posenc::server
