#include "server/admin/http.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "httplib.h"
#include "server/admin/channelz.h"
#include "server/admin/origin.h"
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
// server to do. Lines end at '\n' here because they do in httplib.
std::string WithoutRanges(absl::string_view head) {
  std::string kept;
  kept.reserve(head.size());
  while (!head.empty()) {
    const std::size_t end = std::min(head.find('\n'), head.size() - 1);
    const absl::string_view line = head.substr(0, end + 1);
    if (!absl::StartsWithIgnoreCase(line, "range"))
      absl::StrAppend(&kept, line);
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

void SetText(int status, const char* text, httplib::Response* response) {
  response->status = status;
  response->set_content(text, kPlain);
}

// Why the request must not be answered, as a status; 0 if it may.
int Fault(const httplib::Request& request,
          const std::vector<std::string>& names) {
  const std::size_t hosts = request.get_header_value_count("Host");
  if (hosts > 1 || (hosts == 0 && request.version == "HTTP/1.1")) return 400;
  if (hosts == 1 && !HostAllowed(request.get_header_value("Host"), names)) {
    return 403;
  }
  // Browsers send these for pages of other sites. No page here runs scripts, so
  // none of our own sends them.
  if (request.has_header("Origin")) return 403;
  if (absl::EndsWith(request.get_header_value("Sec-Fetch-Site"), "-site")) {
    return 403;
  }
  if (request.method != "GET" && request.method != "HEAD") return 405;
  return 0;
}

const char* FaultText(int status) {
  switch (status) {
    case 403:
      return "refused: a request from another origin, or for a host that is "
             "neither an IP address nor a name of this server\n";
    case 405:
      return "only GET and HEAD\n";
    default:
      return "a request needs exactly one Host\n";
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
  const char* reason = "Internal Server Error";
  if (status == 400) reason = "Bad Request";
  if (status == 414) reason = "URI Too Long";
  if (status == 431) reason = "Request Header Fields Too Large";
  return absl::StrCat("HTTP/1.1 ", status, " ", reason,
                      "\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
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

  std::string Respond(absl::string_view head) {
    const std::string request = WithoutRanges(head);
    MemoryStream stream(request);
    bool closed = false;
    process_request(stream, /*close_connection=*/true, closed, PreferGzip);
    return stream.TakeResponse();
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
    if (fault != 0) {
      if (fault == 405) response->set_header("Allow", "GET, HEAD");
      return SetText(fault, FaultText(fault), response);
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

  const AdminPages pages_;
  const std::vector<std::string> names_;
};

AdminHttp::AdminHttp(AdminPages pages, std::vector<std::string> names)
    : parser_(std::make_unique<Parser>(std::move(pages), std::move(names))) {}

AdminHttp::~AdminHttp() = default;

std::string AdminHttp::Respond(absl::string_view head) {
  try {
    std::string response = parser_->Respond(head);
    return response.empty() ? BareResponse(400) : response;
  } catch (...) {
    return BareResponse(500);
  }
}

}  // namespace posenc::server
