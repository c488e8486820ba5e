// What a configuration that was read again changes.

#pragma once

#include <string>
#include <vector>

#include "server/config/config.h"

namespace posenc::server {

struct ConfigChange {
  const char* key;
  std::string values;  // "1024 -> 2048"
};

struct ConfigChanges {
  std::vector<ConfigChange> taken;
  // Names of keys that need a restart.
  std::vector<std::string> ignored;
};

// Sets in `running` the keys that may change while the server runs to what
// `fresh` has. The others stay as they are in `running`.
ConfigChanges TakeChanges(const Config& fresh, Config* running);

}  // namespace posenc::server
