// What SIGHUP does.

#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "server/config/load.h"
#include "server/log/call_log.h"
#include "server/log/log.h"
#include "server/server.h"

namespace posenc::server {

// What takes over a configuration while it runs.
struct Reloadable {
  Server* server;
  Log* log;
  CallLog* calls;
};

// Takes over from `fresh` what may change, in `running` too, and logs what
// changed: one line, and one more if something needs a restart. If `fresh` is
// an error or does not hold together, everything stays as it was. Files of
// certificates and tokens are read again; one that cannot be used is told by
// the server and stays as it was, alone.
void Reload(const absl::StatusOr<LoadedConfig>& fresh, LoadedConfig* running,
            const Reloadable& to);

}  // namespace posenc::server
