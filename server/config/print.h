// Prints the configuration and its keys for people.

#pragma once

#include <string>

#include "server/config/keys.h"
#include "server/config/load.h"

namespace posenc::server {

// Returns the text of a file from which --config reads the same values. The
// text has every key with its value, and the value's source as a comment. For 0
// or "", the comment also has the value that the server chooses, or the meaning
// of 0 or "".
std::string ConfigText(const LoadedConfig& loaded);

// Returns the table of all keys in docs/server.md.
std::string KeysTable();

// Returns the form of a value, such as "SIZE", "debug|info" or "on|off".
std::string ValueText(const Key& key);

// Returns the default in a form for people, such as "127.0.0.1:50051" or "half
// of the memory". Returns "" if there is no default.
std::string DefaultText(const Key& key);

// Returns "posencd 0.2.0" and a line about the build, without a line end.
std::string VersionText();

}  // namespace posenc::server
