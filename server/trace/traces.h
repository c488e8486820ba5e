// Sends spans of calls to an OpenTelemetry collector, by OTLP over gRPC.
//
// A call has a span only if its metadata `traceparent` says that the caller
// records the trace. So the caller decides whether a trace is worth its cost.
// The queue holds 2048 spans. If the collector is slow or unreachable, the
// queue fills, and further spans are dropped. No call ever waits for the
// collector.

#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/call/call_observer.h"

namespace posenc::server {

// Returns INVALID_ARGUMENT, field "--otlp-endpoint", if StartTraces() would
// refuse `endpoint`.
absl::Status CheckTraces(const std::string& endpoint);

// Starts to send spans to `endpoint`, such as "http://host:4317", or https://
// for TLS with the system's root certificates. Returns INVALID_ARGUMENT for
// another form, and in a build without traces (POSENC_OTLP). The collector may
// be unreachable. Destroying the observer may take 2 s, in which it sends its
// remaining spans.
absl::StatusOr<std::unique_ptr<CallObserver>> StartTraces(
    const std::string& endpoint);

}  // namespace posenc::server
