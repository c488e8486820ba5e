// gRPC's own log, which is the process's.

#pragma once

#include <memory>

#include "server/log/log.h"

namespace posenc::server {

// From now on gRPC's lines go to `log`, with their severity and their place in
// gRPC as "source". Of each place a few are written at once and one in ten
// seconds after that, because peers can cause them; "suppressed" counts the
// others. GRPC_VERBOSITY says which lines there are. The log lives as long as
// the process.
void SendGrpcLogTo(std::shared_ptr<Log> log);

// gRPC's lines go nowhere.
void SilenceGrpcLog();

}  // namespace posenc::server
