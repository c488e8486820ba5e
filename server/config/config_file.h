// Files of the configuration: TOML, as far as CLI11 reads it.
//
//   listen = ["0.0.0.0:50051", "unix:/run/posenc.sock"]   # arrays, comments
//   max-waiting = 1_000
//   [tls]                       # tables: this is tls-cert
//   cert = "/etc/posenc/tls.crt"
//
// A table's name stands in front of its keys with a hyphen, so that every key
// may be written flat, in a table, or dotted (tls.cert). Escapes, multi-line
// strings, inline tables and arrays of tables are refused.

#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace posenc::server {

struct FileEntry {
  std::string key;  // "tls-cert"
  std::vector<std::string> values;
  int line;
};

// The entries of a file's text, in its order; keys may be unknown and come
// again. INVALID_ARGUMENT for what is no TOML or is refused, "NAME:3: expected
// key = value" for line 3; `name` is the file's.
absl::StatusOr<std::vector<FileEntry>> ParseConfigFile(absl::string_view name,
                                                       absl::string_view text);

// The text of a file of at most 1 MiB. INVALID_ARGUMENT, with the path in
// front, if it cannot be had.
absl::StatusOr<std::string> ReadConfigFile(const std::string& path);

}  // namespace posenc::server
