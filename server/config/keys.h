// The keys of the configuration. One table makes the command line
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

// How a value is written. In the file, what is neither a number nor true or
// false stands in quotes.
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
  // Range of bytes, integers, and durations in milliseconds; least and most
  // number of texts of a list.
  std::int64_t min;
  std::int64_t max;
  // Whether SIGHUP changes it in a server that runs.
  bool reloads;
  KeyField (*field)(Config&);
  // One sentence.
  const char* meaning;
  // Words of a choice, with '|' between them; of others the name of the value
  // in --help and the documentation.
  const char* value;
  // What a default of 0 or nothing stands for; "" if it stands for itself.
  const char* default_means;
  // Whether nothing, which leaves the server or the probe less safe, must not
  // be given by an empty value, as of a variable that was never filled in.
  bool no_empty = false;
};

absl::Span<const Key> Keys();

// Null if there is no such key.
const Key* FindKey(absl::string_view name);

// "POSENC_MAX_WAITING" of "max-waiting".
std::string EnvironmentName(const Key& key);

// Sets the field of `config`. `values` has one text, or as many as were given
// if the key is a list. The status' message is the fact and the rule, without
// the key's name: "'many' is not a whole number".
absl::Status SetKey(const Key& key, const std::vector<std::string>& values,
                    Config* config);

// The value as the file writes it: 1024, "64MiB", ["a", "b"], true.
std::string KeyText(const Key& key, const Config& config);

}  // namespace posenc::server
