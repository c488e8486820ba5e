// HTTP of the admin server, without sockets: bytes of a request's head in, the
// bytes of the whole response out.

#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace posenc::server {

// What the admin server shows. Called on the admin server's thread; must return
// within milliseconds, because no other request is answered meanwhile. What
// they throw becomes 500.
struct AdminPages {
  std::function<std::string()> metrics;  // /metrics
  std::function<std::string()> config;   // /config; without secrets
  std::function<bool()> ready;           // /readyz: 200 or 503
};

// The longest head of a request (request line and headers), and the longest
// request line of it. Prometheus and kubelet send a few hundred bytes.
inline constexpr std::size_t kMaxHeadBytes = 8 << 10;
inline constexpr std::size_t kMaxLineBytes = 2 << 10;

enum class Head {
  kIncomplete,   // more bytes must come
  kComplete,     // up to its empty line
  kNotHttp,      // 400
  kLineTooLong,  // 414
  kTooLong,      // 431
};

// Judges what has been received so far.
Head JudgeHead(absl::string_view received);

// A response without anything but its status.
std::string BareResponse(int status);

class AdminHttp {
 public:
  // `names`: hosts that requests may ask for beside IP addresses and
  // localhost (see origin.h).
  AdminHttp(AdminPages pages, std::vector<std::string> names);
  ~AdminHttp();

  // The response to a request with this complete head. Never throws. Not for
  // several threads at once. A request's body is never looked at.
  std::string Respond(absl::string_view head);

 private:
  class Parser;
  const std::unique_ptr<Parser> parser_;
};

}  // namespace posenc::server
