// Values with their origin, and the choice among several values for one field.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "core/interpretation/classes/profile.h"
#include "core/interpretation/json_object.h"

namespace posenc::core::interpretation {

struct Value {
  double value = 0;
  std::string text;  // the number, as people write it
  std::string key;   // full path of the key that gives it, or would
  // The reason of the number if the key does not give it; else empty.
  std::string assumed = {};
};

// The key's value; nullopt if it is absent or null.
std::optional<Value> NumberAt(const JsonObject& object, absl::string_view key);
std::optional<Value> IntegerAt(const JsonObject& object, absl::string_view key);

// Whole: an integer that `key`, a full path, gives. Assumed: a number that no
// key gives.
Value Whole(std::int64_t value, std::string key);
Value Assumed(double value, absl::string_view key, std::string why);

// The value used for a field of the spec, chosen among the given values.
struct Choice {
  Value taken;
  // Values of other keys. Each one that differs causes a warning.
  std::vector<Value> left = {};
  // Why the reader does not read these values; empty: because it prefers
  // `taken`.
  std::string why = {};
};

// Reports a choice: the key of `field` for errors, or the assumption, and a
// warning for each key that gives another number. Returns the number of
// `taken`.
double Tell(const Choice& choice, absl::string_view field,
            const ProfileRules& rules, Report* report);

// The reason of an assumption: "absent; transformers' default".
std::string DefaultOf(const ProfileRules& rules);

}  // namespace posenc::core::interpretation
