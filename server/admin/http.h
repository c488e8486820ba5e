// Answers the admin server's requests, without sockets.

#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace posenc::server {

// Functions that make the admin server's pages. They run on its threads,
// several at once if it has several. They must return within milliseconds,
// because no other request is answered in this time. An exception becomes
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
// A web page may give its own name the address of a server that only its
// visitor can reach (DNS rebinding), and make the visitor's browser send
// requests there. The browser then sends the page's name as Host, so the server
// can refuse it. An IP address as Host is safe: there is no name to rebind.
// Prometheus and kubelet use addresses.
bool HostAllowed(absl::string_view host, const std::vector<std::string>& names);

// Returns gRPC's channelz as JSON, the servers and sockets of this process, for
// /channelz, /channelz/servers, /channelz/server/ID[/sockets] and
// /channelz/socket/ID. Lists have at most 100 entries. NOT_FOUND for another
// path and for an unknown ID. gRPC must have been initialised.
absl::StatusOr<std::string> ChannelzPage(absl::string_view path);

class AdminHttp {
 public:
  // names: of HostAllowed().
  AdminHttp(AdminPages pages, std::vector<std::string> names)
      : pages_(std::move(pages)), names_(std::move(names)) {}

  // Returns the answer to a request; ignores its body. Never throws.
  AdminResponse Answer(const AdminRequest& request) const;

 private:
  AdminResponse Page(const AdminRequest& request) const;

  const AdminPages pages_;
  const std::vector<std::string> names_;
};

}  // namespace posenc::server
