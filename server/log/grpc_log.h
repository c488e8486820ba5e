// Redirects the log of gRPC. gRPC has only one log in a process.

#pragma once

#include <memory>

#include "server/log/log.h"

namespace posenc::server {

// Sends all further log lines of gRPC to `log`, with their severity, and with
// their file and line in gRPC's code as "source". Peers can cause log lines. So
// each source may write a few lines in a burst, and then one line in ten
// seconds. "suppressed" counts the dropped lines. The environment variable
// GRPC_VERBOSITY selects the lines. `log` is never freed.
void SendGrpcLogTo(std::shared_ptr<Log> log);

// Drops gRPC's lines.
void SilenceGrpcLog();

}  // namespace posenc::server
