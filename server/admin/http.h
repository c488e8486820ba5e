// What the admin server answers to a request, without sockets.

#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace posenc::server {

// What the admin server shows. Called on the admin server's threads, several at
// once if it has several; must return within milliseconds, because no other
// request is answered meanwhile. What they throw becomes 500.
struct AdminPages {
  std::function<std::string()> metrics;  // /metrics
  std::function<std::string()> config;   // /config; without secrets
  std::function<bool()> ready;           // /readyz: 200 or 503
};

// What counts of a request's head.
struct AdminRequest {
  std::string method, path, version;  // "GET", "/metrics", "HTTP/1.1"
  std::vector<std::string> hosts;     // values of its headers Host
};

struct AdminResponse {
  int status = 200;
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers;
};

class AdminHttp {
 public:
  // `names`: hosts that requests may ask for beside IP addresses and
  // localhost (see host.h).
  AdminHttp(AdminPages pages, std::vector<std::string> names)
      : pages_(std::move(pages)), names_(std::move(names)) {}

  // The answer to a request, whose body is not looked at. Never throws.
  AdminResponse Answer(const AdminRequest& request) const;

 private:
  AdminResponse Page(const AdminRequest& request) const;

  const AdminPages pages_;
  const std::vector<std::string> names_;
};

}  // namespace posenc::server
