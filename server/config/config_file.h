// Files of the configuration: TOML 1.0.
//
//   listen = ["0.0.0.0:50051", "unix:/run/posenc.sock"]   # arrays, comments
//   max-waiting = 1_000
//   [tls]                       # tables: this is tls-cert
//   cert = "/etc/posenc/tls.crt"
//
// A table's name stands in front of its keys with a hyphen, so that every key
// may be written flat, in a table, or dotted (tls.cert).

#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/config/keys.h"

namespace posenc::server {

struct FileValue {
  const char* type;  // of TOML's, in words
  std::string text;  // as a flag would have it
};

struct FileEntry {
  std::string key;  // "tls-cert"
  int line;
  std::vector<FileValue> values;
  bool array = false;  // else there is one value
  // A table's header without keys; there are no values.
  bool empty_table = false;
};

// The entries of a file's text, in its order; keys may be unknown, and the
// same one may come flat and in a table. INVALID_ARGUMENT for what is no TOML,
// "NAME:3: threads: ..." for line 3; `name` is the file's.
absl::StatusOr<std::vector<FileEntry>> ParseConfigFile(absl::string_view name,
                                                       absl::string_view text);

// The entry's texts as SetKey() takes them. INVALID_ARGUMENT if TOML's type is
// not the key's: a number in quotes.
absl::StatusOr<std::vector<std::string>> TextsFor(const Key& key,
                                                  const FileEntry& entry);

}  // namespace posenc::server
