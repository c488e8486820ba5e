#include "client/cli/session.h"

#include <cstdint>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "client/cli/status.h"
#include "google/protobuf/util/json_util.h"

namespace posenc::cli {
namespace {

// The most that protobuf can frame; a server's own limit is at most this.
constexpr std::int64_t kMaxMessageBytes = INT32_MAX;

// Long enough to show progress, and faster as a stream from here on.
constexpr std::int64_t kStreamAboveBytes = 64 << 20;

}  // namespace

absl::StatusOr<Session> Session::Open(const GlobalFlags& flags) {
  absl::Duration timeout;
  if (!absl::ParseDuration(flags.timeout, &timeout) ||
      timeout <= absl::ZeroDuration()) {
    return UsageError(absl::StrCat("--timeout: '", flags.timeout,
                                   "' is no positive duration; write 60s"));
  }
  if (!flags.server.empty()) {
    ClientOptions options;
    options.target = flags.server;
    options.timeout = timeout;
    options.max_message_bytes = kMaxMessageBytes;
    options.stream_above_bytes = kStreamAboveBytes;
    return Session(nullptr, Client::Connect(options));
  }
  server::ServerOptions options;
  options.limits.max_request_bytes = kMaxMessageBytes;
  options.limits.max_response_bytes = kMaxMessageBytes;
  absl::StatusOr<std::unique_ptr<server::Server>> server =
      server::Server::Start(options);
  if (!server.ok()) return server.status();
  Client client((*server)->InProcessChannel(), timeout);
  return Session(*std::move(server), std::move(client));
}

nlohmann::ordered_json ToJson(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  std::string text;
  const auto status =
      google::protobuf::util::MessageToJsonString(message, &text, options);
  return nlohmann::ordered_json::parse(status.ok() ? text : "{}", nullptr,
                                       /*allow_exceptions=*/false);
}

void PrintJson(const nlohmann::ordered_json& json) {
  // Bytes that are no UTF-8 (file names, messages) must not end the program.
  const std::string text =
      json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
  std::printf("%s\n", text.c_str());
}

void PrintError(const absl::Status& status, bool json) {
  const std::string code = absl::StatusCodeToString(status.code());
  const std::string message(status.message());
  if (json) {
    PrintJson({{"error",
                {{"code", code},
                 {"reason", ErrorReason(status)},
                 {"message", message}}}});
  } else {
    std::fprintf(stderr, "posenc: %s: %s\n", code.c_str(), message.c_str());
  }
}

std::string NumberText(double value) { return absl::StrFormat("%.9g", value); }

std::string BytesText(double bytes) {
  if (bytes < 1e3) return absl::StrFormat("%.0f B", bytes);
  if (bytes < 1e6) return absl::StrFormat("%.1f kB", bytes / 1e3);
  if (bytes < 1e9) return absl::StrFormat("%.1f MB", bytes / 1e6);
  return absl::StrFormat("%.2f GB", bytes / 1e9);
}

}  // namespace posenc::cli
