// A snapshot of the server's state, for metrics.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"

namespace posenc::server {

struct ServerStatus {
  // True if clients should send new calls; false from the start of a drain.
  bool ready = true;

  // Size and claims of the budget (Limits::in_flight_bytes).
  std::int64_t budget_bytes = 0;
  std::int64_t claimed_bytes = 0;

  std::int64_t calls_waiting = 0;
  std::int64_t calls_in_service = 0;  // calls that have a place (Places)
  std::int64_t calls_limit = 0;       // current limit of calls_in_service
  std::int64_t calls_in_progress = 0;

  // Size of the free memory blocks that are kept for later responses.
  std::int64_t kept_bytes = 0;

  // The cache of resolved encodings.
  std::int64_t cache_bytes = 0;
  std::int64_t cache_hits = 0, cache_misses = 0;  // since the start

  std::int64_t connections = 0;
  // Numbers of refused connections since the start, by reason (kEndingNames of
  // server/transport/listener.h). All reasons are present from the start.
  std::vector<std::pair<std::string, std::int64_t>> connections_refused;

  // Time at which the server's certificate expires; nullopt without TLS.
  std::optional<absl::Time> tls_not_after;
  std::int64_t tls_reload_errors = 0;
  std::int64_t token_reload_errors = 0;

  std::int64_t log_lines_dropped = 0;
};

}  // namespace posenc::server
