#include "core/interpretation/provenance.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/error.h"

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
  return Whole(*value, object.Path(key));
}

Value Whole(std::int64_t value, std::string key) {
  return {static_cast<double>(value), absl::StrCat(value), std::move(key)};
}

Value Assumed(double value, absl::string_view key, std::string why) {
  return {value, NumberText(value), std::string(key), std::move(why)};
}

double Tell(const Choice& choice, absl::string_view field,
            const ProfileRules& rules, Report* report) {
  const Value& taken = choice.taken;
  std::string why = choice.why;
  if (why.empty()) why = absl::StrCat(rules.project, " takes ", taken.text);
  if (taken.assumed.empty()) {
    report->given_by[std::string(field)] = taken.key;
    if (choice.why.empty()) absl::StrAppend(&why, " of ", taken.key);
  } else {
    report->Assume(taken.key, taken.text, taken.assumed);
  }
  for (const Value& other : choice.left) {
    if (other.value == taken.value) continue;
    report->Warn(other.key, " ", other.text, " is not read: ", why);
  }
  return taken.value;
}

std::string DefaultOf(const ProfileRules& rules) {
  if (rules.profile == Profile::kHf) return "absent; transformers' default";
  return absl::StrCat("absent; default of ", rules.project);
}

}  // namespace posenc::core::interpretation
