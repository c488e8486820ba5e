// Reads configuration files in TOML 1.0.
//
//   listen = ["0.0.0.0:50051", "unix:/run/posenc.sock"]   # arrays, comments
//   max-waiting = 1_000
//   [tls]                       # tables: this is tls-cert
//   cert = "/etc/posenc/tls.crt"
//
// A table's name and a hyphen are put before the table's keys. So every key may
// be written flat (tls-cert), in a table, or dotted (tls.cert).

#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/config/keys.h"

namespace posenc::server {

struct FileValue {
  const char* type;  // name of the TOML type, for errors
  std::string text;  // the value, written as in a flag
};

struct FileEntry {
  std::string key;  // "tls-cert"
  int line;
  std::vector<FileValue> values;
  bool array = false;  // false: there is one value
  // True if the entry is a table's header without keys; it has no values.
  bool empty_table = false;
};

// Returns the entries of a file's text, in the file's order. Keys may be
// unknown, and one key may come both flat and in a table. Returns
// INVALID_ARGUMENT for malformed TOML. The message begins with the file's name,
// the line and the key, if a key is found, as in "NAME:3: threads: ...". `name`
// is the file's name.
absl::StatusOr<std::vector<FileEntry>> ParseConfigFile(absl::string_view name,
                                                       absl::string_view text);

// Returns the entry's texts for SetKey(). Returns INVALID_ARGUMENT if the key
// does not accept the TOML type, for example for a number in quotes.
absl::StatusOr<std::vector<std::string>> TextsFor(const Key& key,
                                                  const FileEntry& entry);

}  // namespace posenc::server
