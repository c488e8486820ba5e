// Answers the admin server's requests, without sockets.

#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace posenc::server {

// Functions that make the admin server's pages. They run on its threads,
// several at once if it has several. They must return within milliseconds,
// because no other request is answered meanwhile. An exception becomes status
// 500.
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

class AdminHttp {
 public:
  // `names`: hosts that requests may name beside IP addresses and localhost
  // (host.h).
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
