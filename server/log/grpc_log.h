// Redirects the log of gRPC. The process has only one such log.

#pragma once

#include <memory>

#include "server/log/log.h"

namespace posenc::server {

// From now on sends gRPC's lines to `log`, with their severity, and with their
// file and line in gRPC's code as "source". Peers can cause log lines. So each
// source may write a few lines in a burst, and then one line in ten seconds;
// "suppressed" counts the lines that were dropped. GRPC_VERBOSITY selects the
// lines. `log` is never freed.
void SendGrpcLogTo(std::shared_ptr<Log> log);

// Drops gRPC's lines.
void SilenceGrpcLog();

}  // namespace posenc::server
