#include "server/admin/http.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"
#include "server/admin/channelz.h"
#include "server/admin/origin.h"
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

// Why the request must not be answered, as a status; 0 if it may.
int Fault(const AdminRequest& request, const std::vector<std::string>& names) {
  const std::size_t hosts = request.Count("Host");
  if (hosts > 1 || (hosts == 0 && request.version == "HTTP/1.1")) return 400;
  const std::string host = request.Header("Host");
  if (hosts == 1 && !HostAllowed(host, names)) return 403;
  // Browsers tell which site's page asks. Ours is the one at the same host and
  // port.
  if (request.Count("Origin") > 0 &&
      (request.Count("Origin") > 1 ||
       !SameOrigin(request.Header("Origin"), host))) {
    return 403;
  }
  if (absl::EndsWith(request.Header("Sec-Fetch-Site"), "-site")) {
    return 403;
  }
  return 0;
}

constexpr char kMethods[] = "/v1/";

// The length of the body that a head announces. A body without a length would
// have to be read to be bounded.
int BodyFault(const AdminRequest& request, std::size_t* bytes) {
  if (request.Count("Transfer-Encoding") > 0 ||
      request.Count("Content-Length") != 1) {
    return 411;
  }
  const std::string length = request.Header("Content-Length");
  // Far more digits than the longest body has would overflow, and are too
  // large.
  if (length.empty() ||
      !std::all_of(length.begin(), length.end(), absl::ascii_isdigit)) {
    return 400;
  }
  if (length.size() > 18 || !absl::SimpleAtoi(length, bytes) ||
      *bytes > kMaxBodyBytes) {
    return 413;
  }
  const std::string type = request.Header("Content-Type");
  const absl::string_view media = absl::StripAsciiWhitespace(
      absl::string_view(type).substr(0, std::min(type.find(';'), type.size())));
  return absl::EqualsIgnoreCase(media, "application/json") ? 0 : 415;
}

// What becomes metadata of a call, which gRPC allows no other bytes in.
bool IsMetadata(const std::string& value) {
  return std::all_of(value.begin(), value.end(),
                     [](char c) { return c >= ' ' && c <= '~'; });
}

const char* FaultText(int status) {
  switch (status) {
    case 403:
      return "refused: a request from another origin, or for a host that is "
             "neither an IP address nor a name of this server\n";
    case 405:
      return "not by this method\n";
    case 411:
      return "a body needs one Content-Length, and no Transfer-Encoding\n";
    case 413:
      return "a body of more than 1 MiB\n";
    case 415:
      return "a body that is not application/json\n";
    default:
      return "a request needs exactly one Host, and headers that are as HTTP "
             "has them\n";
  }
}

AdminResponse Refusal(int status, const char* allowed) {
  AdminResponse response = Text(status, FaultText(status));
  if (status == 405) response.headers.emplace_back("Allow", allowed);
  return response;
}

}  // namespace

std::string AdminRequest::Header(absl::string_view name) const {
  for (const auto& [key, value] : headers) {
    if (absl::EqualsIgnoreCase(key, name)) return value;
  }
  return "";
}

std::size_t AdminRequest::Count(absl::string_view name) const {
  return static_cast<std::size_t>(
      std::count_if(headers.begin(), headers.end(), [name](const auto& each) {
        return absl::EqualsIgnoreCase(each.first, name);
      }));
}

AdminResponse JsonResponse(const JsonAnswer& answer) {
  return Content(answer.status, answer.body, "application/json");
}

Reaction AdminHttp::React(const AdminRequest& request) const {
  Reaction reaction;
  try {
    Answer(request, &reaction);
  } catch (...) {
    // A peer is not told what was thrown: it may hold a secret.
    reaction.call.reset();
    reaction.response = Text(500, "the page could not be made\n");
  }
  return reaction;
}

void AdminHttp::Answer(const AdminRequest& request, Reaction* reaction) const {
  const int fault = Fault(request, names_);
  if (fault != 0) {
    reaction->response = Text(fault, FaultText(fault));
  } else if (pages_.explorer != nullptr &&
             absl::StartsWith(request.path, kMethods)) {
    AnswerCall(request, reaction);
  } else if (request.method != "GET" && request.method != "HEAD") {
    reaction->response = Refusal(405, "GET, HEAD");
  } else {
    reaction->response = Page(request);
  }
}

AdminResponse AdminHttp::Page(const AdminRequest& request) const {
  if (pages_.explorer != nullptr && request.path == "/") {
    const bool known = request.Header("If-None-Match") == page_.etag;
    return {known ? 304 : 200,
            known ? "" : page_.html,
            {{"Content-Type", "text/html; charset=utf-8"},
             {"X-Content-Type-Options", "nosniff"},
             {"Cache-Control", "no-cache"},  // ask each time
             {"ETag", page_.etag},
             {"Content-Security-Policy", page_.policy},
             {"Referrer-Policy", "no-referrer"},
             {"Cross-Origin-Opener-Policy", "same-origin"},
             {"Cross-Origin-Resource-Policy", "same-origin"}}};
  }
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

// Answers at once if there is something wrong with the head, else sets the
// reaction's call.
void AdminHttp::AnswerCall(const AdminRequest& request,
                           Reaction* reaction) const {
  const auto refuse = [reaction](int status, const char* allowed) {
    reaction->response = Refusal(status, allowed);
  };
  const std::string method = request.path.substr(std::strlen(kMethods));
  const JsonMethod kind = FindJsonMethod(method);
  if (kind == JsonMethod::kNone) {
    reaction->response = Text(404, "no such method\n");
    return;
  }
  const char* const verb = kind == JsonMethod::kGet ? "GET" : "POST";
  if (request.method != verb) return refuse(405, verb);
  if (kind == JsonMethod::kPost) {
    const int fault = BodyFault(request, &reaction->body_bytes);
    if (fault != 0) return refuse(fault, "");
  }
  JsonCall call{method, request.Header("Authorization"),
                request.Header("X-Request-Id"), request.Header("Traceparent")};
  for (const std::string* value :
       {&call.authorization, &call.request_id, &call.traceparent}) {
    if (!IsMetadata(*value)) return refuse(400, "");
  }
  reaction->call = std::move(call);
}

}  // namespace posenc::server
