#include "server/admin/http.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cstdint>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"
#include "grpc/grpc.h"
#include "grpc/support/alloc.h"
#include "server/metrics/exposition.h"

namespace posenc::server {
namespace {

constexpr char kPlain[] = "text/plain; charset=utf-8";

AdminResponse Content(int status, std::string body, const char* type) {
  return {status,
          std::move(body),
          {{"Content-Type", type},
           {"Cache-Control", "no-store"},
           {"X-Content-Type-Options", "nosniff"}}};
}

AdminResponse Text(int status, const char* text) {
  return Content(status, text, kPlain);
}

bool IsAddress(int family, absl::string_view text) {
  // inet_pton would stop at a NUL and accept the text before it.
  if (absl::StrContains(text, '\0')) return false;
  in6_addr address;  // large enough for IPv4 and IPv6
  return inet_pton(family, std::string(text).c_str(), &address) == 1;
}

// Returns true for "" and for a port such as ":9090".
bool IsPort(absl::string_view text) {
  if (text.empty()) return true;
  if (text.size() < 2 || text.size() > 6 || text.front() != ':') return false;
  text.remove_prefix(1);
  return std::all_of(text.begin(), text.end(), absl::ascii_isdigit);
}

// Returns the answer that refuses a request, or nullopt if the request is
// allowed.
std::optional<AdminResponse> Refusal(const AdminRequest& request,
                                     const std::vector<std::string>& names) {
  const std::vector<std::string>& hosts = request.hosts;
  if (hosts.size() > 1 || (hosts.empty() && request.version == "HTTP/1.1")) {
    return Text(400, "a request needs exactly one Host\n");
  }
  if (!hosts.empty() && !HostAllowed(hosts[0], names)) {
    return Text(403,
                "refused: the host of the request must be an IP address or a "
                "name of this server\n");
  }
  if (request.method == "GET" || request.method == "HEAD") return std::nullopt;
  AdminResponse response = Text(405, "use GET or HEAD\n");
  response.headers.emplace_back("Allow", "GET, HEAD");
  return response;
}

constexpr std::intptr_t kMaxSockets = 100;

// Returns a copy of a text that gRPC has allocated, and frees gRPC's text.
absl::StatusOr<std::string> Take(char* json) {
  if (json == nullptr) return absl::NotFoundError("no such entity");
  std::string text = json;
  gpr_free(json);
  return text;
}

}  // namespace

bool HostAllowed(absl::string_view host,
                 const std::vector<std::string>& names) {
  if (absl::StartsWith(host, "[")) {
    const std::size_t end = host.find(']');
    return end != absl::string_view::npos && IsPort(host.substr(end + 1)) &&
           IsAddress(AF_INET6, host.substr(1, end - 1));
  }
  const std::size_t colon = std::min(host.find(':'), host.size());
  if (!IsPort(host.substr(colon))) return false;
  const absl::string_view name = host.substr(0, colon);
  if (absl::EqualsIgnoreCase(name, "localhost")) return true;
  if (IsAddress(AF_INET, name)) return true;
  return std::any_of(names.begin(), names.end(),
                     [name](const std::string& allowed) {
                       return absl::EqualsIgnoreCase(name, allowed);
                     });
}

absl::StatusOr<std::string> ChannelzPage(absl::string_view path) {
  const absl::Status unknown = absl::NotFoundError("no such page");
  if (path == "/channelz" || path == "/channelz/") path = "/channelz/servers";
  if (!absl::ConsumePrefix(&path, "/channelz/")) return unknown;
  if (path == "servers") return Take(grpc_channelz_get_servers(0));
  const bool server = absl::ConsumePrefix(&path, "server/");
  if (!server && !absl::ConsumePrefix(&path, "socket/")) return unknown;
  const bool sockets = server && absl::ConsumeSuffix(&path, "/sockets");
  std::int64_t id = 0;
  if (!absl::SimpleAtoi(path, &id) || id <= 0) return unknown;
  if (sockets)
    return Take(grpc_channelz_get_server_sockets(id, 0, kMaxSockets));
  return Take(server ? grpc_channelz_get_server(id)
                     : grpc_channelz_get_socket(id));
}

AdminResponse AdminHttp::Answer(const AdminRequest& request) const {
  try {
    std::optional<AdminResponse> refusal = Refusal(request, names_);
    return refusal.has_value() ? *std::move(refusal) : Page(request);
  } catch (...) {
    // The peer must not see the exception's text, which may contain a secret.
    return Text(500, "the page could not be made\n");
  }
}

AdminResponse AdminHttp::Page(const AdminRequest& request) const {
  if (request.path == "/healthz") return Text(200, "ok\n");
  if (request.path == "/readyz") {
    return pages_.ready() ? Text(200, "ready\n") : Text(503, "not ready\n");
  }
  if (request.path == "/metrics") {
    return Content(200, pages_.metrics(), kMetricsType);
  }
  if (request.path == "/config") return Content(200, pages_.config(), kPlain);
  const absl::StatusOr<std::string> channelz = ChannelzPage(request.path);
  if (channelz.ok()) return Content(200, *channelz, "application/json");
  return Text(404, "no such page\n");
}

}  // namespace posenc::server
