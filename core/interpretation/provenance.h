// Values with their origin, and the assumptions and warnings that follow from
// it.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/interpretation/config.h"
#include "core/interpretation/json_object.h"
#include "core/interpretation/profile.h"

namespace posenc::core::interpretation {

struct Value {
  double value = 0;
  std::string text;  // the number for people
  std::string key;   // that gives it, in full, or would give it
  // Why it is this number, if the key does not give it; else empty.
  std::string assumed = {};
};

// The key's value; nullopt if it is absent or null.
std::optional<Value> NumberAt(const JsonObject& object, absl::string_view key);
std::optional<Value> IntegerAt(const JsonObject& object, absl::string_view key);

// What is taken for a field of the spec, of the values that are there.
struct Choice {
  Value taken;
  // Values of other keys. Those that differ are warned of.
  std::vector<Value> left = {};
  // Why they are not read; empty: because the reader takes the other.
  std::string why = {};
};

// Tells of a choice: the key of `field` for errors, or the assumption, and a
// warning for each key that gives another number. Returns what is taken.
double Tell(const Choice& choice, absl::string_view field,
            const ProfileRules& rules, ModelRope* rope);

// A warning about a key, which its text begins with.
template <typename... Facts>
void Warn(std::vector<std::string>* warnings, const JsonObject& object,
          absl::string_view key, const Facts&... facts) {
  warnings->push_back(absl::StrCat(object.Path(key), facts...));
}

void Assume(std::string field, std::string value, std::string reason,
            ModelRope* rope);

// The reason of an assumption: "absent; transformers' default".
std::string DefaultOf(const ProfileRules& rules);

}  // namespace posenc::core::interpretation
