// Prints all metrics in Prometheus's format.

#pragma once

#include <string>

#include "server/metrics/call_metrics.h"
#include "server/metrics/server_status.h"

namespace posenc::server {

// Content type of MetricsText().
inline constexpr char kMetricsType[] = "text/plain; version=0.0.4";

// Returns the metrics of `calls`, `status` (posenc_*) and the process
// (process_*), and posenc_build_info, in Prometheus's text format.
// `instruction_set` is the instruction set that the SIMD kernels use.
std::string MetricsText(const CallMetrics& calls, const ServerStatus& status,
                        const std::string& instruction_set);

}  // namespace posenc::server
