// Prints the configuration and its keys for people.

#pragma once

#include <string>

#include "server/config/keys.h"
#include "server/config/load.h"

namespace posenc::server {

// Returns the text of a file from which --config reads the same values. It has
// every key with its value, and the value's source as a comment. For 0 or "",
// the comment also has the value that the server chooses, or what 0 or ""
// means.
std::string ConfigText(const LoadedConfig& loaded);

// Returns the table of all keys in docs/server.md.
std::string KeysTable();

// Returns the form of a value: "SIZE", "debug|info", "on|off".
std::string ValueText(const Key& key);

// Returns the default in a form for people: "127.0.0.1:50051", "half of the
// memory"; "" if there is none.
std::string DefaultText(const Key& key);

// Returns "posencd 0.2.0" and a line about the build, without a line end.
std::string VersionText();

}  // namespace posenc::server
