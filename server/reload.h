// Reloads the configuration at SIGHUP.

#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "server/config/load.h"
#include "server/log/call_log.h"
#include "server/log/log.h"
#include "server/server.h"

namespace posenc::server {

// The objects that take over a configuration while they run.
struct Reloadable {
  Server* server;
  Log* log;
  CallLog* calls;
};

// Takes over the keys of `fresh` that may change, also into `running`, and logs
// the changes: one line, and one more if a key needs a restart. If `fresh` is
// an error or inconsistent, everything stays as it was. Files of certificates
// and tokens are read again; the server reports a file that it cannot use, and
// only that file stays as it was.
void Reload(const absl::StatusOr<LoadedConfig>& fresh, LoadedConfig* running,
            const Reloadable& to);

}  // namespace posenc::server
