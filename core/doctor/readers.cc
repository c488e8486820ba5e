#include "core/doctor/readers.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/angle/quarter_turns.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/interpretation/composite.h"
#include "core/interpretation/content_hash.h"
#include "core/interpretation/json_object.h"
#include "core/interpretation/report.h"
#include "core/interpretation/resolve_json.h"
#include "core/rope/kept.h"

namespace posenc::core::doctor {
namespace {

// Upper bounds on layers and on different ropes. Known models have at most four
// ropes. Layers and ropes beyond these bounds are left out.
constexpr std::int64_t kMaxLayers = 256;
constexpr std::size_t kMaxGroups = 16;

// Returns the layer types that a model may have: the types of its class, the
// types in its dicts, and common types.
std::vector<std::string> KnownTypes(const json& part,
                                    const std::string& model_type) {
  std::vector<std::string> types;
  const auto add = [&types](absl::string_view type) {
    if (!type.empty() && types.size() < kMaxGroups &&
        std::ranges::find(types, type) == types.end()) {
      types.emplace_back(type);
    }
  };
  const Family& family = interpretation::FindFamily(model_type);
  for (const interpretation::LayerKind& kind : family.kinds) add(kind.type);
  for (const json& dict :
       {json::parse(family.rope_parameters, nullptr, false),
        ValueAt(part, "rope_scaling"), ValueAt(part, "rope_parameters")}) {
    for (const auto& [name, entry] : dict.items()) {
      if (dict.is_object() && entry.is_object()) add(name);
    }
  }
  for (const char* type :
       {"full_attention", "sliding_attention", "chunked_attention"}) {
    add(type);
  }
  return types;
}

}  // namespace

json* LanguagePartOf(json* root, std::string* model_type, std::string* path) {
  interpretation::Report ignored;
  const interpretation::JsonObject part = interpretation::LanguagePart(
      interpretation::JsonObject(root, "", &ignored), model_type);
  if (path != nullptr) *path = part.Path();
  // A json_pointer is not used, because it also leads to elements of lists and
  // to values that are no objects.
  json* found = root;
  for (const absl::string_view step :
       absl::StrSplit(part.Path(), '.', absl::SkipEmpty())) {
    const auto it = found->find(std::string(step));
    if (it == found->end() || !it->is_object()) return root;
    found = &*it;
  }
  return found;
}

const json& ValueAt(const json& object, absl::string_view key) {
  static const json& null = *new json();
  const auto it = object.find(std::string(key));
  return it == object.end() ? null : *it;
}

bool IsGiven(const json& object, absl::string_view key) {
  return !ValueAt(object, key).is_null() &&
         ValueAt(object, key) != json::object();
}

bool IsFlat(const json& dict) {
  return dict.is_object() && !dict.empty() &&
         std::ranges::none_of(dict, &json::is_object);
}

std::optional<double> NumberAt(const json& object, absl::string_view key) {
  const json& value = ValueAt(object, key);
  return value.is_number() ? std::optional(value.get<double>()) : std::nullopt;
}

std::string TextAt(const json& object, absl::string_view key) {
  const json& value = ValueAt(object, key);
  return value.is_string() ? value.get<std::string>() : "";
}

std::vector<double> NumbersOf(const json& list) {
  std::vector<double> numbers;
  for (const json& value : list.is_array() ? list : json::array()) {
    if (value.is_number()) numbers.push_back(value.get<double>());
  }
  return numbers;
}

double RelativeDifference(double a, double b) {
  const double scale = std::max(std::abs(a), std::abs(b));
  return scale > 0 ? std::abs(a - b) / scale : 0;
}

std::string ListText(const std::vector<double>& values) {
  const auto add = [](std::string* out, double value) {
    absl::StrAppend(out, PlainNumber(value));
  };
  return absl::StrCat("[", absl::StrJoin(values, ", ", add), "]");
}

void AddName(const std::string& text, absl::string_view name,
             NamesByText* all) {
  auto at = std::ranges::find(*all, text, &NamesByText::value_type::first);
  if (at == all->end()) at = all->insert(at, {text, {}});
  at->second.emplace_back(name);
}

std::string TakenText(const NamesByText& all, const char* separator) {
  std::vector<std::string> facts;
  bool has_verb = false;
  for (const auto& [text, names] : all) {
    const char* verb = names.size() == 1 ? " takes " : " take ";
    if (text == kRefuses) {
      verb = names.size() == 1 ? " refuses" : " refuse";
    } else if (std::exchange(has_verb, true)) {
      verb = " ";
    }
    facts.push_back(absl::StrCat(absl::StrJoin(names, ", "), verb,
                                 text == kRefuses ? "" : text));
  }
  return absl::StrJoin(facts, separator);
}

absl::StatusOr<ResolvedRope> Resolve(const json& root, const Reader& reader,
                                     const LayerGroup& group,
                                     const Reach& reach,
                                     interpretation::ModelPart part) {
  RETURN_IF_ERROR(reach.status());
  interpretation::RopeSource how;
  how.profile = reader.profile;
  how.profile_version = std::string(reader.reads_as);
  how.layer_index = group.index;
  how.layer_type = group.type;
  how.part = part;
  how.sequence_length = reach.length;
  ASSIGN_OR_RETURN(
      ResolvedRope rope,
      interpretation::ResolveJson(root, how, MissingLength::kAssumeOriginal));
  // A readable file may still give a frequency outside of posenc's range.
  for (const double w : rope.inv_freq) {
    if (!(w == 0 ||
          (std::abs(w) >= kMinFrequency && std::abs(w) <= kMaxFrequency))) {
      return absl::InvalidArgumentError(
          absl::StrCat("config_json: gives a frequency ", PlainNumber(w),
                       ", which is out of range"));
    }
  }
  return rope;
}

std::string LayerGroup::Name() const {
  if (type) return absl::StrCat("layers of type ", *type);
  if (layers.empty()) return "";
  std::vector<std::string> runs;
  for (std::size_t i = 0; i < layers.size();) {
    std::size_t end = i;
    while (end + 1 < layers.size() && layers[end + 1] == layers[end] + 1) ++end;
    runs.push_back(end == i ? absl::StrCat(layers[i])
                            : absl::StrCat(layers[i], "-", layers[end]));
    i = end + 1;
  }
  constexpr std::size_t kShown = 6;
  if (runs.size() > kShown) {
    runs.resize(kShown);
    runs.emplace_back("...");
  }
  return absl::StrCat(layers.size() == 1 ? "layer " : "layers ",
                      absl::StrJoin(runs, ", "),
                      layer_type.empty() ? "" : " (" + layer_type + ")");
}

std::vector<LayerGroup> GroupLayers(const json& root, const Reach& reach) {
  const Reader& reader = *FindReader("hf");
  const auto whole = Resolve(root, reader, {}, reach);
  const auto details = GetErrorDetails(whole.status());
  if (whole.ok() || !details ||
      (details->field != "layer_type" && details->field != "layer_index")) {
    return {LayerGroup{}};
  }
  json copy = root;
  std::string model_type;
  const json& part = *LanguagePartOf(&copy, &model_type, nullptr);
  interpretation::Report ignored;
  std::int64_t layers = interpretation::JsonObject(&part, "", &ignored)
                            .FirstInteger(interpretation::kLayersNames)
                            .value_or(0);
  const json& types = ValueAt(part, "layer_types");
  const std::size_t step = interpretation::ListsMlps(types, model_type) ? 2 : 1;
  const auto type_of = [&types, step](std::size_t layer) {
    const std::size_t i = step * layer;
    return types.is_array() && i < types.size() && types[i].is_string()
               ? types[i].get<std::string>()
               : "";
  };
  if (layers == 0 && types.is_array()) {
    layers = static_cast<std::int64_t>(types.size());
  }
  std::vector<LayerGroup> groups;
  std::map<std::string, std::size_t> by_hash;
  for (std::int32_t i = 0; i < std::min(layers, kMaxLayers); ++i) {
    LayerGroup group;
    group.index = i;
    group.layer_type = type_of(i);
    const auto rope = Resolve(root, reader, group, reach);
    const auto fault = GetErrorDetails(rope.status());
    const std::string field = fault ? fault->field : "";
    // An error about "layer_index" means that a list of layers is too short, so
    // the layers end here. WarnOfLists() warns of the list. If the first layer
    // has another error, the code below tries layer types. But if that error is
    // about "config_json", every layer and every type has it.
    if (!rope.ok() && (field == "layer_index" ||
                       (groups.empty() && field != "config_json"))) {
      break;
    }
    const auto [it, is_new] = by_hash.emplace(
        rope.ok() ? interpretation::ContentHash(*rope) : "", groups.size());
    if (is_new && groups.size() == kMaxGroups) break;
    if (is_new) groups.push_back(group);
    LayerGroup& own = groups[it->second];
    own.layers.push_back(i);
    if (own.layer_type != group.layer_type) own.layer_type.clear();
    if (!rope.ok()) break;
  }
  if (!groups.empty()) return groups;
  for (const std::string& type : KnownTypes(part, model_type)) {
    LayerGroup group;
    group.type = type;
    if (Resolve(root, reader, group, reach).ok()) groups.push_back(group);
  }
  // The error of a single layer is more useful than the error that a layer must
  // be chosen.
  if (groups.empty()) {
    groups.emplace_back();
    if (layers > 0 && details->field == "layer_index") {
      groups[0] = {0, std::nullopt, {0}, type_of(0)};
    }
  }
  return groups;
}

std::string DescribeRope(const ResolvedRope& rope) {
  if (rope.spec.nope) return "no rotation";
  std::string text = absl::StrCat(rope.spec.rotary_dim, " channels");
  if (rope.spec.rope_theta) {
    absl::StrAppend(&text, ", base ", PlainNumber(*rope.spec.rope_theta));
  }
  // The description leaves out the ends of a ramp.
  const std::string scaling = interpretation::ScalingText(rope.spec);
  absl::StrAppend(&text, ", ",
                  absl::string_view(scaling).substr(0, scaling.find(", ramp")));
  if (rope.attention_factor != 1) {
    absl::StrAppend(&text, ", amplitude ",
                    PlainNumber(std::round(rope.attention_factor * 1e6) / 1e6));
  }
  return text;
}

std::optional<double> FactorOf(const RopeSpec& spec) {
  const auto& scaling = spec.scaling;
  if (const auto* s = std::get_if<LinearScaling>(&scaling)) return s->factor;
  if (const auto* s = std::get_if<YarnScaling>(&scaling)) return s->factor;
  if (const auto* s = std::get_if<Llama3Scaling>(&scaling)) return s->factor;
  return std::nullopt;
}

Comparison Compare(const ResolvedRope& reference, const ResolvedRope& other,
                   const Reach& reach) {
  Comparison result;
  const interpretation::RopeDifference difference =
      interpretation::CompareRopes(reference, other);
  result.explanations = difference.explanations;
  const bool one_is_nope = reference.spec.nope != other.spec.nope;
  result.pairing =
      one_is_nope || (!reference.spec.nope &&
                      (reference.spec.rotary_dim != other.spec.rotary_dim ||
                       reference.spec.pairing != other.spec.pairing ||
                       reference.spec.reverse != other.spec.reverse ||
                       reference.heads != other.heads ||
                       (reference.spec.slice != other.spec.slice &&
                        reference.spec.rotary_dim != reference.head_dim)));
  Kept kept(reference, other, reach.stop);
  result.frequencies = !kept.equal() && !result.pairing;
  result.amplitude = !reference.spec.nope && !other.spec.nope &&
                     reference.attention_factor != other.attention_factor;
  result.softmax =
      reference.softmax_scale_multiplier != other.softmax_scale_multiplier;
  result.axes = reference.axis_of_pair != other.axis_of_pair ||
                reference.axes() != other.axes();
  Verdict& verdict = result.verdict;
  verdict.first_distance = kept.FirstDistance(reach.length);
  verdict.kept_at_length = kept.At(reach.length);
  verdict.least_kept = kept.Least(reach.length);
  verdict.first_angle = difference.first_diverging_position;
  if (result.amplitude) {
    verdict.amplitude_ratio =
        other.attention_factor / reference.attention_factor;
  }
  if (!kept.equal()) verdict.worst_pair = difference.worst_pair;
  return result;
}

Verdict VerdictOf(const Comparison& comparison, const Reader& reader,
                  const ResolvedRope& rope) {
  Verdict verdict = comparison.verdict;
  verdict.name = std::string(reader.title);
  verdict.says = absl::StrCat(reader.version, ": ", DescribeRope(rope));
  return verdict;
}

std::string FactOf(const absl::Status& status) {
  std::string text(status.message());
  for (const absl::string_view field : {"config_json: ", "config_json."}) {
    if (absl::StartsWith(text, field)) text.erase(0, field.size());
  }
  return text;
}

}  // namespace posenc::core::doctor
