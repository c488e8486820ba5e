#include "client/tools/arguments/connection.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "client/tools/files/status.h"

namespace posenc::cli {
namespace {

// Protobuf's limit on the size of a message. The client sends all messages up
// to this size. The server has its own limit, which is not higher, and refuses
// larger messages.
constexpr std::int64_t kMaxMessageBytes = INT32_MAX;

// Requests above this size are sent as a stream, so that transfer and
// computation overlap.
constexpr std::int64_t kStreamAboveBytes = 64 << 20;

}  // namespace

absl::StatusOr<Connection> Connection::Open(const GlobalFlags& flags) {
  absl::Duration timeout;
  if (!absl::ParseDuration(flags.timeout, &timeout) ||
      timeout <= absl::ZeroDuration()) {
    return UsageError(absl::StrCat("--timeout: '", flags.timeout,
                                   "' is no positive duration; write 60s"));
  }
  if (!flags.server.empty()) {
    ClientOptions options;
    options.target = flags.server;
    const absl::Status secured =
        flags::ApplySecurityFlags(flags.security, &options);
    if (!secured.ok()) return UsageError(secured.message());
    options.timeout = timeout;
    options.request_id = flags.request_id;
    options.traceparent = flags.traceparent;
    options.max_message_bytes = kMaxMessageBytes;
    options.stream_above_bytes = kStreamAboveBytes;
    return Connection(nullptr, Client::Connect(options));
  }
  if (flags.security.Given()) {
    return UsageError(
        "--server: missing; TLS and tokens are for a server elsewhere");
  }
  if (!flags.request_id.empty() || !flags.traceparent.empty()) {
    return UsageError(
        "--server: missing; --request-id and --traceparent are for a server "
        "elsewhere");
  }
  server::ServerOptions options;
  options.limits.max_request_bytes = kMaxMessageBytes;
  options.limits.max_response_bytes = kMaxMessageBytes;
  ASSIGN_OR_RETURN(auto server, server::Server::Start(options));
  Client client(server->InProcessChannel(), timeout);
  return Connection(std::move(server), std::move(client));
}

}  // namespace posenc::cli
