// The configuration and its keys as texts for people.

#pragma once

#include <string>

#include "server/config/keys.h"
#include "server/config/load.h"

namespace posenc::server {

// Every key with its value and, as a comment, its source: a file that --config
// reads back to the same values.
std::string ConfigText(const LoadedConfig& loaded);

// The table of all keys in docs/server.md.
std::string KeysTable();

// What a value looks like: "SIZE", "debug|info", "on|off".
std::string ValueText(const Key& key);

// The default for people: "127.0.0.1:50051", "half of the memory"; "" if there
// is none.
std::string DefaultText(const Key& key);

// "posencd 0.2.0" and a line of what it was built with, without a line end.
std::string VersionText();

}  // namespace posenc::server
