// Compares a configuration that was read again with the running one.

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

// Copies from `fresh` to `running` the keys that may change while the server
// runs. The others keep their values in `running`.
ConfigChanges TakeChanges(const Config& fresh, Config* running);

}  // namespace posenc::server
