// ReadTheta() of rope_config.h: the base of the frequencies.

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/base/error.h"
#include "core/interpretation/provenance.h"
#include "core/interpretation/rope/rope_config.h"

namespace posenc::core::interpretation {
namespace {

constexpr absl::string_view kKey = "rope_theta";

const ReadingRow& SpellingOf(const RopeDict& from) {
  return SpellingRow(from.rules.profile, from.rules.version, from.model_type);
}

// Returns rope_theta of the dict in which the reader looks for it.
std::optional<Value> BaseInDict(const RopeDict& from,
                                const std::optional<Value>& outer) {
  switch (SpellingOf(from).rule) {
    case ReadingRule::kParametersUnread:
      return std::nullopt;
    case ReadingRule::kParametersFill:
      if (outer) {
        // If rope_parameters repeats the outer base, no warning is needed.
        if (from.dict.Path() == from.config.Path("rope_parameters") &&
            from.dict.Peek().Number(kKey) == outer->value) {
          from.dict.MarkRead(kKey);
        }
        return std::nullopt;
      }
      [[fallthrough]];
    case ReadingRule::kParametersBase:
      return NumberAt(from.config.Object("rope_parameters"), kKey);
    default:
      return NumberAt(from.dict, kKey);
  }
}

// Returns the key outside of the dict from which the reader's class reads the
// base of these layers; empty if the class has no such key.
absl::string_view OuterKey(const RopeDict& from) {
  const ReadingRow* const own = from.Row(ReadingRule::kBaseKey);
  if (own != nullptr && from.config.Has(own->what)) return own->what;
  return from.kind != nullptr && from.Row(ReadingRule::kOneBase) == nullptr
             ? from.kind->theta_key
             : from.family.theta_key;
}

// Returns the class's base for a file that gives no base under `key`.
Value DefaultBase(const RopeDict& from, absl::string_view key) {
  const absl::string_view field = key.empty() ? kKey : key;
  if (from.family.any_names && !from.config.Has(kKey)) {
    for (const absl::string_view other : absl::StrSplit(kBaseNames, ' ')) {
      const std::optional<double> base = from.config.Number(other);
      if (!base) continue;
      return Assumed(
          *base, kKey,
          absl::StrCat("by ", other, ", because model_type is not known"));
    }
  }
  if (from.Row(ReadingRule::kNeedsBase) != nullptr) {
    from.config.Fail(field, "is missing; ", from.Class(), " needs it, and ",
                     SpellingOf(from).says);
  }
  const ReadingRow* const otherwise = from.Row(ReadingRule::kDefaultBase);
  return Assumed(from.kind != nullptr   ? from.kind->theta
                 : otherwise != nullptr ? otherwise->number
                                        : from.family.theta,
                 field,
                 key.empty()
                     ? "fixed; transformers reads no base for this model type"
                     : DefaultOf(from.rules));
}

// Returns the base for a reader's class that reads no base from the file, or
// only a base in the dict; nullopt for other classes.
std::optional<Choice> FixedBase(const RopeDict& from) {
  const ReadingRow* row = from.Row(ReadingRule::kFixedBase);
  if (row == nullptr) {
    row = from.Row(ReadingRule::kDictBase);
    if (row == nullptr) return std::nullopt;
    if (auto inner = NumberAt(from.dict, kKey)) return Choice{*inner};
  }
  Choice choice = {
      Assumed(row->number, kKey,
              absl::StrCat("fixed; ", from.rules.project, " ", row->says))};
  choice.why = absl::StrCat(from.Class(), " ", row->says);
  auto given = NumberAt(from.config, kKey);
  if (!given) given = NumberAt(from.config, from.family.theta_key);
  if (given) choice.left.push_back(*given);
  return choice;
}

// True if the entry of some layer type has that base.
bool IsOfAnEntry(const RopeDict& from, double base) {
  for (const absl::string_view name : {"rope_parameters", "rope_scaling"}) {
    const JsonObject dicts = from.config.Peek().Object(name);
    for (const std::string& type : dicts.Keys()) {
      const json& entry = dicts.At(type);
      if (entry.is_object() && entry.count("rope_theta") > 0 &&
          entry["rope_theta"] == base) {
        return true;
      }
    }
  }
  return false;
}

// Warns of a base that the file gives and the reader's class does not read.
void WarnOfUnreadBase(const RopeDict& from, const Value& base, double theirs) {
  if (base.value == theirs || !from.by_class()) return;
  from.report().Warn(base.key, " is ", base.text, ", which ",
                     from.rules.project, " does not read: it takes ",
                     NumberText(theirs), "; ", base.text, " is used");
}

// Returns 10000 times the number at the key Family::base_ratio. Returns nullopt
// if the family names no key, or if the file lacks the key.
std::optional<Value> BaseByRatio(const RopeDict& from) {
  if (from.family.base_ratio.empty()) return std::nullopt;
  std::optional<Value> base = NumberAt(from.config, from.family.base_ratio);
  if (!base) return std::nullopt;
  base->value *= 10000;
  base->text = NumberText(base->value);
  if (!(base->value > 1 && std::isfinite(base->value))) {
    from.config.Fail(from.family.base_ratio, "is ",
                     NumberText(base->value / 10000),
                     ", and the base is 10000 times that, ", base->text,
                     "; it must be finite and > 1");
  }
  return base;
}

Choice BaseOfDict(const RopeDict& from) {
  if (auto fixed = FixedBase(from)) return *std::move(fixed);
  const LayerKind* const kind = from.kind;
  const absl::string_view key = OuterKey(from);
  std::optional<Value> outer;
  if (!key.empty()) outer = NumberAt(from.config, key);
  if (!outer) outer = BaseByRatio(from);
  if (!key.empty() && !outer) {
    // DBRX and MPT have theta in attn_config.
    outer = NumberAt(from.config.Object("attn_config"), key);
    if (outer && from.is_hf()) {
      WarnOfUnreadBase(from, *outer, from.family.theta);
    }
  }
  const std::optional<Value> inner = BaseInDict(from, outer);
  // The base in a flat dict applies to the layers that the dict scales.
  const bool is_theirs = from.nested || kind == nullptr ||
                         (from.family.dicts != DictRule::kSplit &&
                          (kind->scaled || (key == kKey && !from.by_class())));
  if (inner && is_theirs && from.scales) {
    Choice choice = {*inner};
    if (from.from_class) {
      choice.why = absl::StrCat(
          "without rope_parameters, ", from.rules.project,
          " takes its class's dict, which has rope_theta ", inner->text);
    }
    // If a layer type's entry has the same base as the outer key, no warning is
    // needed.
    if (outer &&
        (!from.nested || from.from_class || !IsOfAnEntry(from, outer->value))) {
      choice.left.push_back(*outer);
    }
    return choice;
  }
  Choice choice = {outer ? *outer : DefaultBase(from, key)};
  choice.why =
      absl::StrCat(from.rules.project, " takes ", choice.taken.text, " for ",
                   kind != nullptr ? kind->type : "model_type ",
                   kind != nullptr ? "" : from.model_type);
  if (inner) choice.left.push_back(*inner);
  if (key.empty()) {
    if (auto given = NumberAt(from.config, kKey)) choice.left.push_back(*given);
  }
  return choice;
}

// Each layer has its own base in layer_rope_theta. If the value of rope_theta
// is not in that list, no layer uses that value.
Choice BaseOfLayer(const RopeDict& from, const Value& own) {
  Choice choice = {own};
  choice.why = absl::StrCat(
      own.key, " gives each layer its base, and no layer has that base");
  const std::vector<double> all = from.config.Numbers("layer_rope_theta");
  for (const JsonObject* object : {&from.dict, &from.config}) {
    const auto given = NumberAt(*object, kKey);
    if (given && !from.from_class &&
        std::count(all.begin(), all.end(), given->value) == 0) {
      choice.left.push_back(*given);
    }
  }
  return choice;
}

}  // namespace

double ReadTheta(const RopeDict& from) {
  const auto tell = [&from](const Choice& choice) {
    return Tell(choice, kKey, from.rules, &from.report());
  };
  if (!from.layer_theta) return tell(BaseOfDict(from));
  const Value own = {*from.layer_theta, NumberText(*from.layer_theta),
                     from.config.Path("layer_rope_theta")};
  if (from.family.layer_bases) return tell(BaseOfLayer(from, own));
  // transformers uses layer_rope_theta only to find the layers with base 0.
  Choice choice = BaseOfDict(from);
  const bool is_given = (!from.from_class && !from.dict.Keys().empty()) ||
                        from.config.Has(from.family.theta_key);
  if (from.by_class() && is_given) {
    choice.left.push_back(own);
    return tell(choice);
  }
  WarnOfUnreadBase(from, own, choice.taken.value);
  return tell({own});
}

}  // namespace posenc::core::interpretation
