#include "core/interpretation/provenance.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "core/error.h"

namespace posenc::core::interpretation {

std::optional<Value> NumberAt(const JsonObject& object, absl::string_view key) {
  const std::optional<double> value = object.Number(key);
  if (!value) return std::nullopt;
  return Value{*value, NumberText(*value), object.Path(key)};
}

std::optional<Value> IntegerAt(const JsonObject& object,
                               absl::string_view key) {
  const std::optional<std::int64_t> value = object.Integer(key);
  if (!value) return std::nullopt;
  return Value{static_cast<double>(*value), absl::StrCat(*value),
               object.Path(key)};
}

double Tell(const Choice& choice, absl::string_view field,
            const ProfileRules& rules, ModelRope* rope) {
  const Value& taken = choice.taken;
  std::string why = choice.why;
  if (why.empty()) why = absl::StrCat(rules.project, " takes ", taken.text);
  if (taken.assumed.empty()) {
    rope->given_by[std::string(field)] = taken.key;
    if (choice.why.empty()) absl::StrAppend(&why, " of ", taken.key);
  } else {
    Assume(taken.key, taken.text, taken.assumed, rope);
  }
  for (const Value& other : choice.left) {
    if (other.value == taken.value) continue;
    rope->warnings.push_back(
        absl::StrCat(other.key, " ", other.text, " is not read: ", why));
  }
  return taken.value;
}

void Assume(std::string field, std::string value, std::string reason,
            ModelRope* rope) {
  rope->assumptions.push_back(
      {std::move(field), std::move(value), std::move(reason)});
}

std::string DefaultOf(const ProfileRules& rules) {
  if (rules.profile == Profile::kHf) return "absent; transformers' default";
  return absl::StrCat("absent; default of ", rules.project);
}

}  // namespace posenc::core::interpretation
