#include "client/tools/explorer/explorer.h"

#include <arpa/inet.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <openssl/sha.h>

#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "client/tools/explorer/json_call.h"

namespace posenc::explorer {

// The files of page/, which the build turns into a source (embed.cmake).
extern const char kPageHtml[];
extern const char kPageStyle[];
extern const char kPageScript[];

namespace {

constexpr char kMethodPrefix[] = "/v1/";

// Enough for several browsers, because one browser opens six connections.
constexpr unsigned kMaxConnections = 32;
constexpr unsigned kSecondsOfSilence = 30;

using Headers = std::vector<std::pair<const char*, std::string>>;

struct Response {
  int status = 200;
  std::string body;
  Headers headers;
};

Response Content(int status, std::string body, const char* type) {
  return {status,
          std::move(body),
          {{"Content-Type", type},
           {"Cache-Control", "no-store"},
           {"X-Content-Type-Options", "nosniff"}}};
}

Response Text(int status, const char* text) {
  return Content(status, text, "text/plain; charset=utf-8");
}

// Returns a header of the request; empty if the request does not have it.
std::string Header(MHD_Connection* connection, const char* name) {
  const char* const value =
      MHD_lookup_connection_value(connection, MHD_HEADER_KIND, name);
  return value == nullptr ? "" : value;
}

// Returns true if `host`, with or without a port, is this machine.
bool IsThisMachine(absl::string_view host) {
  const std::size_t colon = host.rfind(':');
  const absl::string_view name = host.substr(0, colon);
  return name == "127.0.0.1" || absl::EqualsIgnoreCase(name, "localhost");
}

// Returns the HTTP status of a request that is refused before its body is read;
// 0 for other requests.
int FaultOf(MHD_Connection* connection, absl::string_view path,
            absl::string_view method) {
  const std::string host = Header(connection, "Host");
  if (!IsThisMachine(host)) return 403;
  const char* const origin =
      MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Origin");
  if (origin != nullptr &&
      !absl::EqualsIgnoreCase(origin, absl::StrCat("http://", host))) {
    return 403;
  }
  if (absl::EndsWith(Header(connection, "Sec-Fetch-Site"), "-site")) return 403;
  if (!absl::ConsumePrefix(&path, kMethodPrefix)) {
    return method == "GET" || method == "HEAD" ? 0 : 405;
  }
  if (!IsJsonMethod(path)) return 404;
  if (method != "POST") return 405;
  // Requires JSON, because a form of another site cannot send JSON without a
  // preflight request.
  const std::string type = Header(connection, "Content-Type");
  return absl::EqualsIgnoreCase(
             absl::StripAsciiWhitespace(
                 absl::string_view(type).substr(0, type.find(';'))),
             "application/json")
             ? 0
             : 415;
}

Response Refusal(int status) {
  switch (status) {
    case 403:
      return Text(403,
                  "refused: a request from another origin, or for another host "
                  "than 127.0.0.1 and localhost\n");
    case 405:
      return Text(405, "not by this method\n");
    case 413:
      return Text(413, "a body of more than 1 MiB\n");
    case 415:
      return Text(415, "a body that is not application/json\n");
    default:
      return Text(404, "no such page\n");
  }
}

std::string HashOf(absl::string_view text) {
  std::string digest(SHA256_DIGEST_LENGTH, '\0');
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(),
         reinterpret_cast<unsigned char*>(digest.data()));
  return absl::Base64Escape(digest);
}

// Returns the page: one file of HTML, style and script, which calls the methods
// of json_call.h and loads nothing else. Its Content-Security-Policy allows
// only its own script and style, by their hashes.
Response Page() {
  Response response = Content(
      200,
      absl::StrReplaceAll(
          kPageHtml,
          {{"<style></style>", absl::StrCat("<style>", kPageStyle, "</style>")},
           {"<script></script>",
            absl::StrCat("<script>", kPageScript, "</script>")}}),
      "text/html; charset=utf-8");
  const std::string policy = absl::StrCat(
      "default-src 'none'; script-src 'sha256-", HashOf(kPageScript),
      "'; style-src 'sha256-", HashOf(kPageStyle),
      "'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
      "frame-ancestors 'none'");
  response.headers.insert(response.headers.end(),
                          {{"Content-Security-Policy", policy},
                           {"Referrer-Policy", "no-referrer"},
                           {"Cross-Origin-Opener-Policy", "same-origin"},
                           {"Cross-Origin-Resource-Policy", "same-origin"}});
  return response;
}

MHD_Result Send(MHD_Connection* connection, const Response& response) {
  const std::unique_ptr<MHD_Response, void (*)(MHD_Response*)> made(
      MHD_create_response_from_buffer(response.body.size(),
                                      const_cast<char*>(response.body.data()),
                                      MHD_RESPMEM_MUST_COPY),
      &MHD_destroy_response);
  if (made == nullptr) return MHD_NO;
  for (const auto& [name, value] : response.headers) {
    MHD_add_response_header(made.get(), name, value.c_str());
  }
  return MHD_queue_response(connection, static_cast<unsigned>(response.status),
                            made.get());
}

// The part of a request's body that has been received.
struct Exchange {
  std::string body;
  bool too_long = false;
};

}  // namespace

// The functions that libmicrohttpd calls, on the connection's thread. They must
// not throw.
struct Explorer::Callbacks {
  static MHD_Result Access(void* explorer, MHD_Connection* connection,
                           const char* url, const char* method,
                           const char* /*version*/, const char* data,
                           std::size_t* size, void** context) {
    try {
      const auto& self = *static_cast<const Explorer*>(explorer);
      auto* const exchange = static_cast<Exchange*>(*context);
      if (exchange == nullptr) {
        *context = new Exchange;
        const int fault = FaultOf(connection, url, method);
        return fault == 0 ? MHD_YES : Send(connection, Refusal(fault));
      }
      if (*size > 0) {
        exchange->too_long =
            exchange->too_long || exchange->body.size() + *size > kMaxBodyBytes;
        if (!exchange->too_long) exchange->body.append(data, *size);
        *size = 0;
        return MHD_YES;
      }
      if (exchange->too_long) return Send(connection, Refusal(413));
      absl::string_view path = url;
      if (!absl::ConsumePrefix(&path, kMethodPrefix)) {
        static const Response page = Page();
        return Send(connection, path == "/" ? page : Refusal(404));
      }
      const JsonAnswer answer =
          MakeJsonCall(self.client_, path, exchange->body);
      return Send(connection,
                  Content(answer.status, answer.body, "application/json"));
    } catch (...) {
      return MHD_NO;  // no memory: closes the connection
    }
  }

  static void Completed(void* /*explorer*/, MHD_Connection* /*connection*/,
                        void** context, MHD_RequestTerminationCode /*why*/) {
    delete static_cast<Exchange*>(*context);
    *context = nullptr;
  }
};

absl::StatusOr<std::unique_ptr<Explorer>> Explorer::Start(int port,
                                                          Client client) {
  // std::make_unique cannot call the private constructor.
  std::unique_ptr<Explorer> explorer(new Explorer(std::move(client)));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  explorer->daemon_ = MHD_start_daemon(
      MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_THREAD_PER_CONNECTION |
          MHD_USE_POLL,
      0, nullptr, nullptr, &Callbacks::Access, explorer.get(),
      MHD_OPTION_SOCK_ADDR, &address, MHD_OPTION_CONNECTION_LIMIT,
      kMaxConnections, MHD_OPTION_CONNECTION_TIMEOUT, kSecondsOfSilence,
      MHD_OPTION_NOTIFY_COMPLETED, &Callbacks::Completed, nullptr,
      MHD_OPTION_END);
  if (explorer->daemon_ == nullptr) {
    // libmicrohttpd does not report the cause.
    return absl::UnavailableError(absl::StrCat(
        "cannot listen on 127.0.0.1:", port, "; another program may have it"));
  }
  const MHD_DaemonInfo* const info =
      MHD_get_daemon_info(explorer->daemon_, MHD_DAEMON_INFO_BIND_PORT);
  explorer->address_ =
      absl::StrCat("127.0.0.1:", info == nullptr ? port : info->port);
  return explorer;
}

Explorer::~Explorer() {
  if (daemon_ != nullptr) MHD_stop_daemon(daemon_);
}

}  // namespace posenc::explorer
