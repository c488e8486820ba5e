// Values with their origin, and the choice among several values of one field.

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
  std::string key;  // full path of the key that gives, or would give, the value
  // Why this number is assumed, if no key gives it; else empty.
  std::string assumed = {};
};

// Return the key's value; nullopt if the key is absent or null.
std::optional<Value> NumberAt(const JsonObject& object, absl::string_view key);
std::optional<Value> IntegerAt(const JsonObject& object, absl::string_view key);

// Whole() returns an integer that the file gives. `key` is a full path.
// Assumed() returns a number that no key gives.
Value Whole(std::int64_t value, std::string key);
Value Assumed(double value, absl::string_view key, std::string why);

// The value used for a field of the spec, chosen among the given values.
struct Choice {
  Value taken;
  // Values of other keys. A value that differs from `taken` causes a warning.
  std::vector<Value> left = {};
  // Why the reader does not read the values in `left`; empty: the reader
  // prefers `taken`.
  std::string why = {};
};

// Reports a choice. If a key gives the value, records the key for `field`; else
// reports an assumption. Warns of each key that gives another number. Returns
// choice.taken.value.
double Tell(const Choice& choice, absl::string_view field,
            const ProfileRules& rules, Report* report);

// Returns the reason of an assumed default, such as "absent; transformers'
// default".
std::string DefaultOf(const ProfileRules& rules);

}  // namespace posenc::core::interpretation
