// HTTP of the admin server, without sockets: bytes of a request's head in, the
// bytes of the whole response out.

#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "grpcpp/channel.h"
#include "server/admin/json_call.h"

namespace posenc::server {

// What the admin server shows. Called on the admin server's thread; must return
// within milliseconds, because no other request is answered meanwhile. What
// they throw becomes 500.
struct AdminPages {
  std::function<std::string()> metrics;  // /metrics
  std::function<std::string()> config;   // /config; without secrets
  std::function<bool()> ready;           // /readyz: 200 or 503
  // The calls of the explorer (/ and /v1/...) go through it; null: there is no
  // explorer.
  std::shared_ptr<grpc::Channel> explorer;
};

// The longest head of a request (request line and headers), and the longest
// request line of it. Prometheus and kubelet send a few hundred bytes.
inline constexpr std::size_t kMaxHeadBytes = 8 << 10;
inline constexpr std::size_t kMaxLineBytes = 2 << 10;
// The longest body of a call: a config.json, or the keys of a GGUF file without
// its vocabulary.
inline constexpr std::size_t kMaxBodyBytes = 1 << 20;

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

// The response that tells the end of a call.
std::string JsonResponse(const JsonAnswer& answer);

// What is to be done about a head.
struct Reaction {
  std::string response;          // whole; empty if there is a call
  std::optional<JsonCall> call;  // to be made once its body is there
  std::size_t body_bytes = 0;
  bool expects_continue = false;  // before it sends the body (RFC 9110, 10.1.1)
};

class AdminHttp {
 public:
  // `names`: hosts that requests may ask for beside IP addresses and
  // localhost (see origin.h).
  AdminHttp(AdminPages pages, std::vector<std::string> names);
  ~AdminHttp();

  // What to do about a request with this complete head. Never throws. Not for
  // several threads at once. What stands behind the head is not looked at.
  Reaction React(absl::string_view head);

 private:
  class Parser;
  const std::unique_ptr<Parser> parser_;
};

}  // namespace posenc::server
