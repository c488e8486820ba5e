#include "server/admin/channelz.h"

#include <cstdint>

#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"
#include "grpc/grpc.h"
#include "grpc/support/alloc.h"

namespace posenc::server {
namespace {

constexpr std::intptr_t kMaxSockets = 100;

// Copies a text that gRPC has allocated, and frees it.
absl::StatusOr<std::string> Take(char* json) {
  if (json == nullptr) return absl::NotFoundError("no such entity");
  std::string text = json;
  gpr_free(json);
  return text;
}

}  // namespace

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

}  // namespace posenc::server
