#include "core/doctor/config_case.h"

#include <algorithm>
#include <map>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/error.h"
#include "core/interpretation/claimed_length.h"
#include "core/interpretation/classes/class_defaults.h"
#include "core/interpretation/classes/profile.h"
#include "core/interpretation/content_hash.h"
#include "core/interpretation/json_object.h"
#include "core/interpretation/report.h"

namespace posenc::core::doctor {
namespace {

// Upper bound on the entries of one dict that are checked. The bound limits the
// time, because every reader may read each entry. Real models have fewer
// entries.
constexpr std::size_t kMaxDicts = 16;

}  // namespace

bool IsScalingKey(absl::string_view key) {
  return interpretation::IsAmong(
      key,
      "type rope_type factor original_max_position_embeddings "
      "attention_factor attn_factor beta_fast beta_slow mscale "
      "mscale_all_dim truncate low_freq_factor high_freq_factor "
      "short_factor long_factor short_mscale long_mscale alpha "
      "finetuned extrapolation_factor");
}

bool IsSameRope(const absl::StatusOr<ResolvedRope>& a,
                const absl::StatusOr<ResolvedRope>& b) {
  if (!a.ok() || !b.ok()) return a.ok() == b.ok();
  return interpretation::ContentHash(*a) == interpretation::ContentHash(*b);
}

absl::Status Reading::status() const {
  for (const auto& rope : ropes) {
    if (!rope.ok()) return rope.status();
  }
  return absl::OkStatus();
}

std::string Reading::refusal() const {
  for (std::size_t g = 0; g < ropes.size(); ++g) {
    if (ropes[g].ok()) continue;
    const std::string layers = (*groups)[g].Name();
    return absl::StrCat(layers, layers.empty() ? "" : ": ",
                        FactOf(ropes[g].status()));
  }
  return "";
}

Verdict Reading::verdict() const {
  Verdict worst;
  // The worst verdict is the most severe one. Among equally severe verdicts,
  // the worst one keeps the smallest share of a score.
  const auto first =
      std::ranges::min_element(comparisons, {}, [](const Comparison& one) {
        return std::pair(SeverityOf(one.verdict), one.verdict.least_kept);
      });
  if (first != comparisons.end()) worst = first->verdict;
  worst.name = std::string(reader->title);
  std::vector<std::string> says;
  says.reserve(ropes.size());
  for (const auto& rope : ropes) {
    says.push_back(rope.ok() ? DescribeRope(*rope)
                             : "refuses: " + FactOf(rope.status()));
  }
  says.erase(std::unique(says.begin(), says.end()), says.end());
  worst.says = absl::StrCat(reader->version, ": ", absl::StrJoin(says, "; "));
  return worst;
}

bool Reading::differs() const {
  return std::ranges::any_of(comparisons, &Comparison::any);
}

bool Reading::differs(bool Comparison::*which) const {
  return std::ranges::any_of(comparisons, which);
}

const std::string* Reading::Assumed(absl::string_view key) const {
  for (const auto& rope : ropes) {
    if (!rope.ok()) return nullptr;
    for (const Assumption& one : rope->assumptions) {
      if (absl::EndsWith(one.field, key) &&
          absl::StartsWith(one.reason, "absent")) {
        return &one.value;
      }
    }
  }
  return nullptr;
}

ConfigCase::ConfigCase(std::string path, json root,
                       const std::vector<const Reader*>& readers, Reach reach)
    : path_(std::move(path)),
      root_(std::move(root)),
      part_(LanguagePartOf(&root_, &model_type_, &part_path_)),
      family_(interpretation::FindFamily(model_type_)),
      reach_(std::move(reach)) {
  const Reader* const hf = FindReader("hf");
  groups_ = GroupLayers(root_, reach_);
  // The model type of the whole file. A reader must know the class of the whole
  // model, not only the class of the language part.
  const std::string outer =
      interpretation::ModelKey(TextAt(root_, "model_type"));
  std::vector<const Reader*> all = {hf};
  for (const Reader* reader : readers) {
    const auto lacks = [reader](const std::string& type) {
      return interpretation::LacksClass(
          reader->profile, interpretation::VersionOf(*reader), type);
    };
    if (reader != hf && reader->reads_configs &&
        absl::StartsWith(type(), reader->models) && !lacks(type()) &&
        !lacks(outer)) {
      all.push_back(reader);
    }
  }
  for (const Reader* reader : all) {
    Reading reading{reader, &groups_, {}, {}};
    const bool converts = reader->profile == interpretation::Profile::kLlamaCpp;
    const json filled = converts ? WithClassKeys() : json();
    const json& own = converts ? filled : root_;
    for (const LayerGroup& group : groups_) {
      auto rope = Resolve(own, *reader, group, reach_);
      // If the reader refuses the group's layer type, tries another group. The
      // reader may have one rope for all layer types, or it may distinguish
      // layers that are the same for transformers.
      const auto details = GetErrorDetails(rope.status());
      if (details && details->field == "layer_type" && !group.index &&
          (group.type || reference() != nullptr)) {
        LayerGroup other;
        if (!group.type) other.type = "full_attention";
        rope = Resolve(own, *reader, other, reach_);
      }
      reading.ropes.push_back(std::move(rope));
    }
    readings_.push_back(std::move(reading));
  }
  const Reading* const reference = this->reference();
  if (reference == nullptr) return;
  for (Reading& reading : readings_) {
    if (!reading.status().ok()) continue;
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      reading.comparisons.push_back(
          Compare(*reference->ropes[g], *reading.ropes[g], reach_));
    }
  }
}

json ConfigCase::WithClassKeys() const {
  if (reference() == nullptr) return root_;
  const ResolvedRope& rope = this->rope();
  std::map<std::string, json> keys;
  if (family_.width == interpretation::RotaryWidth::kMla) {
    if (interpretation::FindClassDefaults(type()) != nullptr &&
        !rope.spec.nope) {
      keys = {{"qk_rope_head_dim", rope.spec.rotary_dim},
              {"qk_nope_head_dim", rope.head_dim - rope.spec.rotary_dim}};
    }
  } else if (!IsGiven(*part_, "hidden_size") ||
             !IsGiven(*part_, "num_attention_heads")) {
    keys = {{"head_dim", rope.head_dim}};
  }
  const json dict = json::parse(family_.rope_parameters, nullptr, false);
  if (IsFlat(dict) && !IsGiven(*part_, "rope_scaling")) {
    keys["rope_parameters"] = dict;
  }
  return Changed([&keys](json* part) {
    for (const auto& [key, value] : keys) {
      if (!IsGiven(*part, key)) (*part)[key] = value;
    }
  });
}

const Reading* ConfigCase::reference() const {
  for (const Reading& reading : readings_) {
    if (reading.status().ok()) return &reading;
  }
  return nullptr;
}

std::optional<std::size_t> ConfigCase::GroupOf(std::int32_t layer) const {
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const auto& layers = groups_[g].layers;
    if (std::ranges::find(layers, layer) != layers.end()) return g;
  }
  return std::nullopt;
}

absl::StatusOr<ResolvedRope> ConfigCase::Indexer(const Reader& reader) const {
  return Resolve(root_, reader, groups_[0], reach_,
                 interpretation::ModelPart::kIndexer);
}

Ropes ConfigCase::ResolveChanged(const Change& change,
                                 const Reader& reader) const {
  const json root = Changed(change);
  Ropes ropes;
  for (const LayerGroup& group : groups_) {
    ropes.push_back(Resolve(root, reader, group, reach_));
  }
  return ropes;
}

bool ConfigCase::ReadsTheSame(const Change& change) const {
  const Reading* const reference = this->reference();
  if (reference == nullptr) return false;
  return std::ranges::equal(
      reference->ropes, ResolveChanged(change, *reference->reader),
      [](const auto& ours, const auto& other) {
        return IsSameRope(ours, other) &&
               DescribeRope(*ours) == DescribeRope(*other);
      });
}

std::string ConfigCase::BaseKey(std::size_t group, double base,
                                const Reader& reader) const {
  for (const absl::string_view key :
       {family_.kinds[0].theta_key, family_.kinds[1].theta_key,
        family_.theta_key}) {
    if (key.empty()) continue;
    const Ropes ropes = ResolveChanged(
        [&](json* part) { (*part)[std::string(key)] = base; }, reader);
    if (ropes[group].ok() && ropes[group]->spec.rope_theta == base) {
      return std::string(key);
    }
  }
  return "";
}

std::vector<NamedDict> ConfigCase::Dicts() const {
  std::vector<NamedDict> dicts;
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const json& dict = ValueAt(*part_, key);
    if (!dict.is_object()) continue;
    const json::json_pointer place = json::json_pointer() / key;
    if (IsFlat(dict)) dicts.push_back({KeyPath(key), &dict, place});
    std::size_t entries = 0;
    for (const auto& [name, entry] : dict.items()) {
      if (!entry.is_object() || ++entries > kMaxDicts) continue;
      dicts.push_back({KeyPath(key) + "." + name, &entry, place / name});
    }
  }
  return dicts;
}

const json* ConfigCase::FlatDict(std::string* key) const {
  for (const char* name : {"rope_scaling", "rope_parameters"}) {
    const json& dict = ValueAt(*part_, name);
    if (!dict.is_object() || dict.empty()) continue;
    if (!IsFlat(dict)) return nullptr;
    if (key != nullptr) *key = KeyPath(name);
    return &dict;
  }
  return nullptr;
}

const json& ConfigCase::InDicts(absl::string_view key) const {
  for (const NamedDict& named : Dicts()) {
    const json& value = ValueAt(*named.dict, key);
    if (!value.is_null()) return value;
  }
  return ValueAt(json(), key);
}

std::string ConfigCase::WarningOf(absl::string_view key) const {
  if (reference() == nullptr) return "";
  for (const std::string& warning : rope().warnings) {
    if (absl::StartsWith(warning, absl::StrCat(key, " "))) return warning;
  }
  return "";
}

std::optional<std::int64_t> ConfigCase::MaxPositions() const {
  interpretation::Report ignored;
  const std::int64_t length = interpretation::ClaimedLength(
      interpretation::JsonObject(&root_, "", &ignored));
  return length > 0 ? std::optional(length) : std::nullopt;
}

bool ConfigCase::HasOtherBase() const {
  const auto items = part_->items();
  return std::any_of(items.begin(), items.end(), [this](const auto& item) {
    return interpretation::IsBaseName(item.key()) &&
           item.key() != family_.theta_key && item.value().is_number();
  });
}

std::optional<double> ConfigCase::Original(const json& dict) const {
  const auto own = NumberAt(dict, "original_max_position_embeddings");
  // A class with a dict for each layer type reads the original length only
  // inside the dicts.
  if (own || !family_.kinds[0].type.empty()) return own;
  return Number("original_max_position_embeddings");
}

std::string ConfigCase::TypeOf(const json& dict) {
  std::string type = TextAt(dict, "rope_type");
  if (type.empty()) type = TextAt(dict, "type");
  if (type == "mrope") return "default";
  if (type == "su") return "longrope";
  if (type == "deepseek_yarn" || type == "telechat3-yarn") return "yarn";
  return type;
}

std::string ConfigCase::KeyPath(absl::string_view key) const {
  return part_path_.empty() ? std::string(key)
                            : absl::StrCat(part_path_, ".", key);
}

json ConfigCase::Changed(const Change& change) const {
  json copy = root_;
  std::string ignored;
  change(LanguagePartOf(&copy, &ignored, nullptr));
  return copy;
}

std::vector<Verdict> ConfigCase::Explain(const Condition& concerned) {
  std::vector<Verdict> verdicts;
  for (const Reading& reading : readings_) {
    if (!reading.differs() || !concerned(reading)) continue;
    verdicts.push_back(reading.verdict());
    MarkExplained(reading);
  }
  return verdicts;
}

std::vector<Verdict> ConfigCase::ExplainAll() {
  return Explain([](const Reading&) { return true; });
}

void ConfigCase::MarkRefusals() {
  for (const Reading& reading : readings_) {
    if (!reading.status().ok()) MarkExplained(reading);
  }
}

NamesByText ConfigCase::TakenForAbsent(const Taken& taken) {
  const Reading* const reference = this->reference();
  NamesByText all;
  if (reference != nullptr && !taken(*reference).empty()) {
    AddName(taken(*reference), reference->reader->title, &all);
  }
  for (const Reading& reading : readings_) {
    const std::string own = taken(reading);
    if (own == kRefuses) MarkExplained(reading);
    if (own.empty() || (!all.empty() && own == all[0].first)) continue;
    AddName(own, reading.reader->title, &all);
  }
  return all;
}

Finding& ConfigCase::Add(absl::string_view id, Values values,
                         std::vector<std::string> keys,
                         std::vector<Verdict> readers) {
  values.insert(values.begin(), path_);
  return AddFinding(id, values, {path_}, std::move(keys), &findings_,
                    std::move(readers));
}

}  // namespace posenc::core::doctor
