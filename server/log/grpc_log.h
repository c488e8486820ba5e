// Redirects the log of gRPC. The process has only one such log.

#pragma once

#include <memory>

#include "server/log/log.h"

namespace posenc::server {

// From now on gRPC's lines go to `log`, with their severity, and with their
// place in gRPC's code as "source". Peers can cause lines, so each place may
// write a few at once and then one in ten seconds; "suppressed" counts the
// others. GRPC_VERBOSITY selects the lines. The log lives as long as the
// process.
void SendGrpcLogTo(std::shared_ptr<Log> log);

// Drops gRPC's lines.
void SilenceGrpcLog();

}  // namespace posenc::server
