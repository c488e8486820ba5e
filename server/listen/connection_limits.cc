#include "server/listen/connection_limits.h"

#include <sys/resource.h>

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/error.h"

namespace posenc::server {
namespace {

constexpr std::int64_t kDefaultConnections = 4096;

// Descriptors that are left for listeners, gRPC's pollers and files.
constexpr std::int64_t kOtherDescriptors = 64;
// A connection has gRPC's descriptor and the listener's duplicate.
constexpr std::int64_t kDescriptorsEach = 2;
// This many connections are possible even with very few descriptors.
constexpr std::int64_t kFewestConnections = 8;

std::int64_t MostConnections() {
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  const auto most = std::min<rlim_t>(limit.rlim_cur, 1 << 30);  // or infinity
  return std::max(
      kFewestConnections,
      (static_cast<std::int64_t>(most) - kOtherDescriptors) / kDescriptorsEach);
}

}  // namespace

absl::Status CheckConnectionLimits(const ConnectionLimits& limits) {
  if (limits.max_connections < 0 ||
      limits.max_connections > MostConnections()) {
    return core::FieldInvalid(
        "--max-connections",
        absl::StrCat("is ", limits.max_connections, "; must be 1 to ",
                     MostConnections(),
                     " (half the file descriptors of the process less ",
                     kOtherDescriptors, "), or 0 for the default"));
  }
  for (const auto& [flag, count] :
       {std::pair{"--max-connections-per-peer",
                  limits.max_connections_per_peer},
        {"--max-concurrent-streams", limits.max_concurrent_streams}}) {
    if (count < 1) {
      return core::FieldInvalid(
          flag, absl::StrCat("is ", count, "; must be at least 1"));
    }
  }
  if (limits.max_metadata_bytes < kLeastMetadata ||
      limits.max_metadata_bytes > kMostMetadata) {
    return core::FieldInvalid(
        "--max-metadata-bytes",
        absl::StrCat("is ", limits.max_metadata_bytes, "; must be ",
                     kLeastMetadata, " to ", kMostMetadata));
  }
  for (const auto& [flag, duration] :
       {std::pair{"--handshake-timeout", limits.handshake_timeout},
        {"--max-connection-idle", limits.max_connection_idle},
        {"--keepalive-time", limits.keepalive_time},
        {"--keepalive-timeout", limits.keepalive_timeout}}) {
    if (duration < absl::Milliseconds(1)) {
      return core::FieldInvalid(
          flag, absl::StrCat("is ", absl::FormatDuration(duration),
                             "; must be at least 1ms"));
    }
  }
  return absl::OkStatus();
}

ConnectionLimits WithDefaults(ConnectionLimits limits) {
  if (limits.max_connections == 0) {
    limits.max_connections = std::min(kDefaultConnections, MostConnections());
  }
  return limits;
}

}  // namespace posenc::server
