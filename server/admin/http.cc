#include "server/admin/http.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "httplib.h"
#include "server/admin/channelz.h"
#include "server/admin/origin.h"
#include "server/admin/page.h"
#include "server/metrics/exposition.h"

namespace posenc::server {
namespace {

using HandlerResponse = httplib::Server::HandlerResponse;

constexpr char kEndOfLine[] = "\r\n";
constexpr char kEndOfHead[] = "\r\n\r\n";
constexpr char kPlain[] = "text/plain; charset=utf-8";
// "OPTIONS" and "CONNECT" are the longest methods.
constexpr std::size_t kMaxMethodBytes = 7;

// httplib would make as many copies of a page as a Range header has ranges.
// Nobody needs a part of a page, so the header is left out, which HTTP allows a
// server to do. It would also ask for a body (Expect) before we have looked at
// the request. Lines end at '\n' here because they do in httplib.
std::string ForParser(absl::string_view head, bool* expects_continue) {
  std::string kept;
  kept.reserve(head.size());
  while (!head.empty()) {
    const std::size_t end = std::min(head.find('\n'), head.size() - 1);
    const absl::string_view line = head.substr(0, end + 1);
    if (absl::StartsWithIgnoreCase(line, "expect:")) {
      *expects_continue |= absl::StrContains(line, "100-continue");
    } else if (!absl::StartsWithIgnoreCase(line, "range")) {
      absl::StrAppend(&kept, line);
    }
    head.remove_prefix(line.size());
  }
  return kept;
}

// A request in memory, and the response to it.
class MemoryStream final : public httplib::Stream {
 public:
  explicit MemoryStream(absl::string_view request) : request_(request) {}

  std::string TakeResponse() { return std::move(response_); }

  bool is_readable() const override { return !request_.empty(); }
  bool is_writable() const override { return true; }
  ssize_t read(char* data, std::size_t size) override {
    const std::size_t bytes = std::min(size, request_.size());
    std::memcpy(data, request_.data(), bytes);
    request_.remove_prefix(bytes);
    return static_cast<ssize_t>(bytes);
  }
  ssize_t write(const char* data, std::size_t size) override {
    response_.append(data, size);
    return static_cast<ssize_t>(size);
  }
  // No page says who asks.
  void get_remote_ip_and_port(std::string& /*ip*/,
                              int& /*port*/) const override {}
  void get_local_ip_and_port(std::string& /*ip*/,
                             int& /*port*/) const override {}
  socket_t socket() const override { return INVALID_SOCKET; }

 private:
  absl::string_view request_;
  std::string response_;
};

// Of the responses that are made without httplib. Nobody but people reads it.
const char* ReasonPhrase(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 408:
      return "Request Timeout";
    case 409:
      return "Conflict";
    case 414:
      return "URI Too Long";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 499:
      return "Client Closed Request";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
    default:
      return "Internal Server Error";
  }
}

void SetText(int status, const char* text, httplib::Response* response) {
  response->status = status;
  response->set_content(text, kPlain);
}

// Why the request must not be answered, as a status; 0 if it may.
int Fault(const httplib::Request& request,
          const std::vector<std::string>& names) {
  const std::size_t hosts = request.get_header_value_count("Host");
  if (hosts > 1 || (hosts == 0 && request.version == "HTTP/1.1")) return 400;
  const std::string host = request.get_header_value("Host");
  if (hosts == 1 && !HostAllowed(host, names)) return 403;
  // Browsers tell which site's page asks. Ours is the one at the same host and
  // port.
  if (request.has_header("Origin") &&
      (request.get_header_value_count("Origin") > 1 ||
       !SameOrigin(request.get_header_value("Origin"), host))) {
    return 403;
  }
  if (absl::EndsWith(request.get_header_value("Sec-Fetch-Site"), "-site")) {
    return 403;
  }
  return 0;
}

constexpr char kMethods[] = "/v1/";

// The length of the body that a head announces. A body without a length would
// have to be read to be bounded.
int BodyFault(const httplib::Request& request, std::size_t* bytes) {
  if (request.has_header("Transfer-Encoding") ||
      request.get_header_value_count("Content-Length") != 1) {
    return 411;
  }
  const std::string length = request.get_header_value("Content-Length");
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
  const std::string type = request.get_header_value("Content-Type");
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

}  // namespace

Head JudgeHead(absl::string_view received) {
  const std::size_t end = received.find(kEndOfHead);
  const absl::string_view line = received.substr(0, received.find(kEndOfLine));
  if (line.size() > kMaxLineBytes) return Head::kLineTooLong;
  // A method, and the blank after it. TLS and other protocols end here at their
  // first bytes instead of waiting for an empty line.
  const std::size_t blank = line.find(' ');
  const absl::string_view method = line.substr(0, blank);
  const bool is_method =
      method.size() <= kMaxMethodBytes &&
      std::all_of(method.begin(), method.end(), absl::ascii_isupper);
  const bool line_ended = line.size() < received.size();
  if (!is_method || (line_ended && blank == absl::string_view::npos)) {
    return Head::kNotHttp;
  }
  if (end != absl::string_view::npos) {
    return end + std::strlen(kEndOfHead) <= kMaxHeadBytes ? Head::kComplete
                                                          : Head::kTooLong;
  }
  return received.size() < kMaxHeadBytes ? Head::kIncomplete : Head::kTooLong;
}

std::string BareResponse(int status) {
  return absl::StrCat("HTTP/1.1 ", status, " ", ReasonPhrase(status),
                      "\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
}

std::string JsonResponse(const JsonAnswer& answer) {
  return absl::StrCat(
      "HTTP/1.1 ", answer.status, " ", ReasonPhrase(answer.status),
      "\r\nContent-Type: application/json\r\nContent-Length: ",
      answer.body.size(),
      "\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff"
      "\r\nConnection: close\r\n\r\n",
      answer.body);
}

// httplib parses the request and writes the response. Its own listener is not
// used: there a peer that sends or reads slowly keeps a thread.
class AdminHttp::Parser final : public httplib::Server {
 public:
  Parser(AdminPages pages, std::vector<std::string> names)
      : pages_(std::move(pages)), names_(std::move(names)) {
    set_default_headers(
        {{"Cache-Control", "no-store"}, {"X-Content-Type-Options", "nosniff"}});
    // Before httplib's own routing, which would read a body.
    set_pre_routing_handler(
        [this](const httplib::Request& request, httplib::Response& response) {
          Answer(request, &response);
          return HandlerResponse::Handled;
        });
    // What was thrown is nothing for a peer to know.
    set_exception_handler([](const httplib::Request&,
                             httplib::Response& response,
                             const std::exception_ptr&) {
      SetText(500, "the page could not be made\n", &response);
    });
  }

  Reaction React(absl::string_view head) {
    reaction_ = Reaction();
    const std::string request = ForParser(head, &reaction_.expects_continue);
    MemoryStream stream(request);
    bool closed = false;
    process_request(stream, /*close_connection=*/true, closed, PreferGzip);
    if (!reaction_.call) reaction_.response = stream.TakeResponse();
    return std::move(reaction_);
  }

 private:
  // Brotli takes a tenth of a second for what gzip does in two milliseconds.
  static void PreferGzip(httplib::Request& request) {
    const bool gzip =
        absl::StrContains(request.get_header_value("Accept-Encoding"), "gzip");
    request.headers.erase("Accept-Encoding");
    if (gzip) request.set_header("Accept-Encoding", "gzip");
  }

  void Answer(const httplib::Request& request, httplib::Response* response) {
    const int fault = Fault(request, names_);
    if (fault != 0) return SetText(fault, FaultText(fault), response);
    if (pages_.explorer != nullptr &&
        absl::StartsWith(request.path, kMethods)) {
      return AnswerCall(request, response);
    }
    if (request.method != "GET" && request.method != "HEAD") {
      return Refuse(405, "GET, HEAD", response);
    }
    if (pages_.explorer != nullptr && request.path == "/") {
      return AnswerPage(request, response);
    }
    if (request.path == "/healthz") return SetText(200, "ok\n", response);
    if (request.path == "/readyz") {
      const bool ready = pages_.ready();
      return SetText(ready ? 200 : 503, ready ? "ready\n" : "not ready\n",
                     response);
    }
    if (request.path == "/metrics") {
      return response->set_content(pages_.metrics(), kMetricsType);
    }
    if (request.path == "/config") {
      return response->set_content(pages_.config(), kPlain);
    }
    const absl::StatusOr<std::string> channelz = ChannelzPage(request.path);
    if (channelz.ok()) {
      return response->set_content(*channelz, "application/json");
    }
    SetText(404, "no such page\n", response);
  }

  static void Refuse(int status, const char* allowed,
                     httplib::Response* response) {
    if (status == 405) response->set_header("Allow", allowed);
    SetText(status, FaultText(status), response);
  }

  void AnswerPage(const httplib::Request& request,
                  httplib::Response* response) const {
    response->headers.erase("Cache-Control");
    response->set_header("Cache-Control", "no-cache");  // ask each time
    response->set_header("ETag", page_.etag);
    response->set_header("Content-Security-Policy", page_.policy);
    response->set_header("Referrer-Policy", "no-referrer");
    response->set_header("Cross-Origin-Opener-Policy", "same-origin");
    response->set_header("Cross-Origin-Resource-Policy", "same-origin");
    if (request.get_header_value("If-None-Match") == page_.etag) {
      response->status = 304;
      return;
    }
    response->set_content(page_.html, "text/html; charset=utf-8");
  }

  // Answers at once if there is something wrong with the head, else leaves the
  // call in reaction_.
  void AnswerCall(const httplib::Request& request,
                  httplib::Response* response) {
    const std::string method = request.path.substr(std::strlen(kMethods));
    const JsonMethod kind = FindJsonMethod(method);
    if (kind == JsonMethod::kNone) {
      return SetText(404, "no such method\n", response);
    }
    if (request.method != (kind == JsonMethod::kGet ? "GET" : "POST")) {
      return Refuse(405, kind == JsonMethod::kGet ? "GET" : "POST", response);
    }
    if (kind == JsonMethod::kPost) {
      const int fault = BodyFault(request, &reaction_.body_bytes);
      if (fault != 0) return Refuse(fault, "", response);
    }
    JsonCall call{method, request.get_header_value("Authorization"),
                  request.get_header_value("X-Request-Id"),
                  request.get_header_value("Traceparent")};
    for (const std::string* value :
         {&call.authorization, &call.request_id, &call.traceparent}) {
      if (!IsMetadata(*value)) return Refuse(400, "", response);
    }
    reaction_.call = std::move(call);
  }

  const AdminPages pages_;
  const std::vector<std::string> names_;
  const ExplorerPage page_ = MakeExplorerPage();
  Reaction reaction_;  // to the request that is being looked at
};

AdminHttp::AdminHttp(AdminPages pages, std::vector<std::string> names)
    : parser_(std::make_unique<Parser>(std::move(pages), std::move(names))) {}

AdminHttp::~AdminHttp() = default;

Reaction AdminHttp::React(absl::string_view head) {
  Reaction reaction;
  try {
    reaction = parser_->React(head);
    if (!reaction.call && reaction.response.empty()) {
      reaction.response = BareResponse(400);
    }
  } catch (...) {
    reaction.response = BareResponse(500);
  }
  return reaction;
}

}  // namespace posenc::server
