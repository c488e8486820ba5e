// The base of the frequencies: ReadTheta() of rope_config.h.

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/error.h"
#include "core/interpretation/rope_config.h"
#include "core/interpretation/rope_dicts.h"
#include "core/interpretation/scaling_config.h"

namespace posenc::core::interpretation {
namespace {

// rope_theta of the dict that the reader looks for it in.
std::optional<double> BaseInDict(const RopeDict& from,
                                 std::optional<double> outer) {
  constexpr absl::string_view kKey = "rope_theta";
  const ReadingRow& spelling =
      SpellingRow(from.rules.profile, from.rules.version, from.model_type);
  switch (spelling.rule) {
    case ReadingRule::kParametersUnread:
      return std::nullopt;
    case ReadingRule::kParametersFill:
      if (outer) {
        // An equal one there is no surprise.
        if (from.dict.Path() == from.config.Path("rope_parameters") &&
            from.dict.PeekNumber(kKey) == outer) {
          from.dict.MarkRead(kKey);
        }
        return std::nullopt;
      }
      [[fallthrough]];
    case ReadingRule::kParametersBase:
      return from.config.Object("rope_parameters").Number(kKey);
    default:
      return from.dict.Number(kKey);
  }
}

// The base of a class for a file without one under `key`, where it is a
// reader's own.
double DefaultBase(const RopeDict& from, absl::string_view key) {
  const auto row = [&from](ReadingRule rule) {
    return FindReadingRow(from.rules, from.model_type, rule);
  };
  if (row(ReadingRule::kNeedsBase) != nullptr) {
    from.config.Fail(
        key.empty() ? "rope_theta" : key,
        absl::StrCat(
            "is missing; ", from.rules.project, "'s class of model_type ",
            from.model_type, " needs it, ", "and ",
            SpellingRow(from.rules.profile, from.rules.version, from.model_type)
                .says));
  }
  if (from.kind != nullptr) return from.kind->theta;
  const ReadingRow* otherwise = row(ReadingRule::kDefaultBase);
  return otherwise != nullptr ? otherwise->number : from.family.theta;
}

// A base by another name, in a file whose type is not known.
std::optional<double> BaseByOtherName(const RopeDict& from, ModelRope* rope) {
  if (!from.family.any_names || from.config.Has("rope_theta")) {
    return std::nullopt;
  }
  for (const absl::string_view key : kBaseNames) {
    const std::optional<double> base = from.config.Number(key);
    if (!base) continue;
    Assume("rope_theta", NumberText(*base),
           absl::StrCat("by ", key, ", as model_type is not known"), rope);
    return base;
  }
  return std::nullopt;
}

// The base of a reader's class that asks no file for one, or the dict alone.
std::optional<double> FixedBase(const RopeDict& from, ModelRope* rope) {
  const ReadingRow* row =
      FindReadingRow(from.rules, from.model_type, ReadingRule::kFixedBase);
  if (row == nullptr) {
    row = FindReadingRow(from.rules, from.model_type, ReadingRule::kDictBase);
    if (row == nullptr) return std::nullopt;
    if (const auto inner = from.dict.Number("rope_theta")) return inner;
  }
  for (const absl::string_view key :
       {absl::string_view("rope_theta"), from.family.theta_key}) {
    const std::optional<double> given = from.config.Number(key);
    if (!given || *given == row->number) continue;
    rope->warnings.push_back(absl::StrCat(
        from.config.Path(key), " ", NumberText(*given),
        " is not read: ", from.rules.project, "'s class of model_type ",
        from.model_type, " ", row->says));
    break;
  }
  Assume("rope_theta", NumberText(row->number),
         absl::StrCat("fixed; ", from.rules.project, " ", row->says), rope);
  return row->number;
}

// A base beside entries for types of layers, none of which has that base.
void WarnOfOuterBase(const RopeDict& from, absl::string_view key,
                     ModelRope* rope) {
  const double outer = from.config.PeekNumber(key).value_or(0);
  for (const absl::string_view name : {"rope_parameters", "rope_scaling"}) {
    const JsonObject dicts = from.config.PeekObject(name);
    for (const std::string& type : dicts.Keys()) {
      const nlohmann::json& entry = *dicts.Find(type);
      if (!entry.is_object()) continue;
      const auto base = entry.find("rope_theta");
      if (base != entry.end() && *base == outer) return;
    }
  }
  rope->warnings.push_back(absl::StrCat(
      from.config.Path(key), " ", NumberText(outer),
      " is not read: ", from.dict.Path("rope_theta"), " is ",
      NumberText(from.dict.PeekNumber("rope_theta").value_or(0)), ", which ",
      from.rules.project, " takes; remove the one that is not meant"));
}

// The base that layer_rope_theta gives a layer. A base beside the list is of no
// layer, or is another layer's.
double BaseOfLayer(const RopeDict& from, ModelRope* rope) {
  constexpr absl::string_view kKey = "rope_theta";
  constexpr absl::string_view kList = "layer_rope_theta";
  rope->given_by[std::string(kKey)] = from.config.Path(kList);
  const std::vector<double> bases = from.config.Numbers(kList);
  for (const JsonObject* object : {&from.dict, &from.config}) {
    const std::optional<double> given = object->Number(kKey);
    if (!given || from.from_class ||
        std::count(bases.begin(), bases.end(), *given) > 0) {
      continue;
    }
    rope->warnings.push_back(
        absl::StrCat(object->Path(kKey), " ", NumberText(*given),
                     " is not read: ", from.config.Path(kList),
                     " gives each layer its base, and none has that one"));
  }
  return *from.layer_theta;
}

double ThetaOfDict(const RopeDict& from, ModelRope* rope) {
  constexpr absl::string_view kKey = "rope_theta";
  if (const auto fixed = FixedBase(from, rope)) return *fixed;
  const LayerKind* kind = from.kind;
  const bool is_one = FindReadingRow(from.rules, from.model_type,
                                     ReadingRule::kOneBase) != nullptr;
  const ReadingRow* const own =
      FindReadingRow(from.rules, from.model_type, ReadingRule::kBaseKey);
  const absl::string_view key =
      own != nullptr && from.config.Has(own->what) ? own->what
      : kind != nullptr && !is_one                 ? kind->theta_key
                                                   : from.family.theta_key;
  std::optional<double> outer;
  if (!key.empty()) {
    outer = from.config.Number(key);
    if (outer)
      rope->given_by.try_emplace(std::string(kKey), from.config.Path(key));
    // DBRX and MPT publish theta in attn_config.
    if (!outer) {
      outer = from.config.Object("attn_config").Number(key);
      if (outer && *outer != from.family.theta && ReadsByClass(from.rules)) {
        rope->warnings.push_back(absl::StrCat(
            from.config.Path("attn_config.rope_theta"), " is ",
            NumberText(*outer), ", which the model was trained with and ",
            from.rules.project, " does not read: it takes ",
            NumberText(from.family.theta), "; the former is used"));
      }
    }
  }
  // A flat dict's base is for the layers that it scales.
  const bool is_theirs = from.nested || kind == nullptr || kind->scaled ||
                         (key == kKey && !ReadsByClass(from.rules));
  const bool is_split =
      !from.nested && kind != nullptr && from.family.dicts == DictRule::kSplit;
  const bool is_read = from.scales || key == kKey;
  const auto inner = BaseInDict(from, outer);
  if (inner && is_theirs && !is_split && is_read) {
    if (outer && from.nested && !from.from_class)
      WarnOfOuterBase(from, key, rope);
    if (outer && *outer != *inner && (!from.nested || from.from_class)) {
      rope->warnings.push_back(
          from.from_class
              ? absl::StrCat(from.config.Path(key), " ", NumberText(*outer),
                             " is not read: without rope_parameters, ",
                             from.rules.project,
                             " takes its class's, whose rope_theta is ",
                             NumberText(*inner))
              : absl::StrCat(from.dict.Path(kKey), " is ", NumberText(*inner),
                             ", and ", key, " of the model ",
                             NumberText(*outer), "; the former is used"));
    }
    return *inner;
  }
  if (!outer && !inner) {
    if (const auto other = BaseByOtherName(from, rope)) return *other;
  }
  const double theta = outer ? *outer : DefaultBase(from, key);
  if (inner && *inner != theta) {
    rope->warnings.push_back(absl::StrCat(
        from.dict.Path(kKey), " ", NumberText(*inner),
        " is not read here: ", from.rules.project, " takes ", NumberText(theta),
        kind != nullptr ? absl::StrCat(" for ", kind->type)
                        : absl::StrCat(" for model_type ", from.model_type)));
  }
  if (outer) return theta;
  if (key.empty()) {
    if (const auto given = from.config.Number(kKey); given && *given != theta) {
      rope->warnings.push_back(absl::StrCat(
          from.config.Path(kKey), " ", NumberText(*given), " is not read",
          kind != nullptr ? absl::StrCat(" for ", kind->type) : "", ": ",
          from.rules.project, " takes ", NumberText(theta), " there"));
    }
  }
  Assume(key.empty() ? std::string(kKey) : std::string(key), NumberText(theta),
         key.empty() ? "fixed; transformers reads no base for this model type"
                     : DefaultOf(from.rules),
         rope);
  return theta;
}

}  // namespace

double ReadTheta(const RopeDict& from, ModelRope* rope) {
  if (from.family.layer_bases && from.layer_theta) {
    return BaseOfLayer(from, rope);
  }
  const double theta = ThetaOfDict(from, rope);
  if (!from.layer_theta || *from.layer_theta == theta) return theta;
  if (!ReadsByClass(from.rules)) return *from.layer_theta;
  // transformers reads of the list only which layers have 0.
  const bool is_given = (!from.from_class && !from.dict.Keys().empty()) ||
                        from.config.Has(from.family.theta_key);
  rope->warnings.push_back(absl::StrCat(
      "layer_rope_theta gives the layer ", NumberText(*from.layer_theta),
      ", and transformers, which reads of that list only which are 0, takes ",
      NumberText(theta), "; the ", is_given ? "latter" : "former", " is used"));
  return is_given ? theta : *from.layer_theta;
}

}  // namespace posenc::core::interpretation
