#include "server/transport/connection_limits.h"

#include <sys/resource.h>

#include <algorithm>

#include "core/base/error.h"

namespace posenc::server {
namespace {

constexpr std::int64_t kDefaultConnections = 4096;

// Number of descriptors that are left for listeners, gRPC's pollers and files.
constexpr std::int64_t kOtherDescriptors = 64;
// A connection has gRPC's descriptor and the listener's duplicate.
constexpr std::int64_t kDescriptorsEach = 2;
// At least this many connections are allowed, even if the process has very few
// descriptors.
constexpr std::int64_t kFewestConnections = 8;

std::int64_t MostConnections() {
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  // The limit can be infinite.
  const auto most = std::min<rlim_t>(limit.rlim_cur, 1 << 30);
  return std::max(
      kFewestConnections,
      (static_cast<std::int64_t>(most) - kOtherDescriptors) / kDescriptorsEach);
}

}  // namespace

absl::Status CheckConnectionLimits(const ConnectionLimits& limits) {
  if (limits.max_connections <= MostConnections()) return absl::OkStatus();
  return core::FieldInvalid("--max-connections", "is ", limits.max_connections,
                            "; must be 1 to ", MostConnections(),
                            " (half the file descriptors of the process less ",
                            kOtherDescriptors, "), or 0 for the default");
}

ConnectionLimits WithDefaults(ConnectionLimits limits) {
  if (limits.max_connections == 0) {
    limits.max_connections = std::min(kDefaultConnections, MostConnections());
  }
  return limits;
}

}  // namespace posenc::server
