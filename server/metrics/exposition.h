// Everything that is measured, as Prometheus reads it.

#pragma once

#include <string>

#include "server/metrics/call_metrics.h"
#include "server/metrics/server_status.h"

namespace posenc::server {

// Content type of what MetricsText() returns.
inline constexpr char kMetricsType[] = "text/plain; version=0.0.4";

// The text format of Prometheus: `calls`, `status` (posenc_*), the process
// (process_*) and posenc_build_info. `instruction_set` is that of the kernels.
std::string MetricsText(const CallMetrics& calls, const ServerStatus& status,
                        const std::string& instruction_set);

}  // namespace posenc::server
