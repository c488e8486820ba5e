#include "server/admin/http.h"

#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "server/admin/channelz.h"
#include "server/admin/host.h"
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

// Returns the refusal of a request; nothing if the request is allowed.
std::optional<AdminResponse> Refusal(const AdminRequest& request,
                                     const std::vector<std::string>& names) {
  const std::vector<std::string>& hosts = request.hosts;
  if (hosts.size() > 1 || (hosts.empty() && request.version == "HTTP/1.1")) {
    return Text(400, "a request needs exactly one Host\n");
  }
  if (!hosts.empty() && !HostAllowed(hosts[0], names)) {
    return Text(403,
                "refused: a request for a host that is neither an IP address "
                "nor a name of this server\n");
  }
  if (request.method == "GET" || request.method == "HEAD") return std::nullopt;
  AdminResponse response = Text(405, "not by this method\n");
  response.headers.emplace_back("Allow", "GET, HEAD");
  return response;
}

}  // namespace

AdminResponse AdminHttp::Answer(const AdminRequest& request) const {
  try {
    std::optional<AdminResponse> refusal = Refusal(request, names_);
    return refusal.has_value() ? *std::move(refusal) : Page(request);
  } catch (...) {
    // The peer does not see the exception's text: it may hold a secret.
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
