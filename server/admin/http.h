// What the admin server answers to a request, without sockets.

#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "grpcpp/channel.h"
#include "server/admin/json_call.h"
#include "server/admin/page.h"

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

// The longest body of a call: a config.json, or the keys of a GGUF file without
// its vocabulary.
inline constexpr std::size_t kMaxBodyBytes = 1 << 20;

// The head of a request.
struct AdminRequest {
  std::string method, path, version;  // "GET", "/metrics", "HTTP/1.1"
  std::vector<std::pair<std::string, std::string>> headers;

  // The header's first value; names are compared without case.
  std::string Header(absl::string_view name) const;
  std::size_t Count(absl::string_view name) const;
};

struct AdminResponse {
  int status = 200;
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers;
};

// The response that tells the end of a call.
AdminResponse JsonResponse(const JsonAnswer& answer);

// What is to be done about a request.
struct Reaction {
  AdminResponse response;        // if there is no call
  std::optional<JsonCall> call;  // to be made once its body is there
  std::size_t body_bytes = 0;
};

class AdminHttp {
 public:
  // `names`: hosts that requests may ask for beside IP addresses and
  // localhost (see origin.h).
  AdminHttp(AdminPages pages, std::vector<std::string> names)
      : pages_(std::move(pages)), names_(std::move(names)) {}

  // What to do about a request. Never throws. Not for several threads at once.
  Reaction React(const AdminRequest& request) const;

 private:
  void Answer(const AdminRequest& request, Reaction* reaction) const;
  AdminResponse Page(const AdminRequest& request) const;
  void AnswerCall(const AdminRequest& request, Reaction* reaction) const;

  const AdminPages pages_;
  const std::vector<std::string> names_;
  const ExplorerPage page_ = MakeExplorerPage();
};

}  // namespace posenc::server
