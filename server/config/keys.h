// The keys of the configuration. One table defines the command line
// (--max-waiting), the environment (POSENC_MAX_WAITING), the file (max-waiting)
// and the documentation, so that they cannot differ.

#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "server/config/config.h"

namespace posenc::server {

// The form of a value. In the file, all values except numbers, true and false
// are in quotes.
enum class KeyKind {
  kBytes,     // 1024, 64MiB
  kDuration,  // 30s, 500ms, 1h30m
  kInteger,   // 12
  kFraction,  // 0.01: 0 to 1
  kSwitch,    // on, off; true, false; a flag without a value is on
  kChoice,    // one of a few words
  kText,      // a path, an address
  kList,      // several texts
};

// The field of a Config that a key sets.
using KeyField =
    std::variant<std::int64_t*, int*, double*, bool*, absl::Duration*,
                 std::string*, std::vector<std::string>*>;

inline constexpr std::int64_t kUnbounded =
    std::numeric_limits<std::int64_t>::max();

struct Key {
  const char* name;
  KeyKind kind;
  // Range of bytes, of integers, of durations in milliseconds, or of the number
  // of texts in a list.
  std::int64_t min;
  std::int64_t max;
  // True if SIGHUP changes the key's value in a running server.
  bool reloads;
  KeyField (*field)(Config&);
  // Says in one sentence what the key does.
  const char* meaning;
  // The name of the value in --help and the documentation. The value of a
  // choice is its words with '|' between them.
  const char* value;
  // The meaning of 0 or "" as the default; empty if the default needs no
  // explanation.
  const char* default_means;
  // True if an empty value is an error. Without the file that this key names,
  // the server or the probe would be less safe. A value can be empty by
  // mistake, if a shell variable is unset, and must then not mean "no file".
  bool no_empty = false;
};

absl::Span<const Key> Keys();

// Returns null if no key has this name.
const Key* FindKey(absl::string_view name);

// Returns "POSENC_MAX_WAITING" for "max-waiting".
std::string EnvironmentName(const Key& key);

// Sets the field of `config`. `values` has one text, or all given texts of a
// list. The status' message is the fact and the rule, without the key's name,
// such as "'many' is not a whole number".
absl::Status SetKey(const Key& key, const std::vector<std::string>& values,
                    Config* config);

// Returns the value in the syntax of the file: 1024, "64MiB", ["a", "b"], true.
std::string KeyText(const Key& key, const Config& config);

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
// runs. Other keys keep their values in `running`.
ConfigChanges TakeChanges(const Config& fresh, Config* running);

}  // namespace posenc::server
