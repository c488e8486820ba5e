// readers.*: differences between readers that no other check of the
// configuration explains.

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "core/doctor/config_case.h"

namespace posenc::core::doctor {
namespace {

// Returns the layers of the groups that differ in the member `which`; nullopt
// if all groups differ in it, or if the layers are not known.
std::optional<std::vector<std::int32_t>> LayersWhere(const ConfigCase& config,
                                                     const Reading& reading,
                                                     bool Comparison::*which) {
  if (std::ranges::all_of(reading.comparisons, which)) return std::nullopt;
  std::vector<std::int32_t> layers;
  for (std::size_t g = 0; g < reading.comparisons.size(); ++g) {
    if (!(reading.comparisons[g].*which)) continue;
    const auto& own = config.groups()[g].layers;
    layers.insert(layers.end(), own.begin(), own.end());
  }
  if (layers.empty()) return std::nullopt;
  return layers;
}

std::string Digits(double value) { return absl::StrFormat("%.6g", value); }

std::string Explanations(const Comparison& comparison) {
  std::vector<std::string> shown = comparison.explanations;
  std::erase_if(shown, [](const std::string& text) {
    return text.starts_with("amplitude") || text.starts_with("softmax");
  });
  return shown.empty() ? "by the last bits" : absl::StrJoin(shown, "; ");
}

// Returns the dict that transformers' class takes for a file without a dict;
// null if the file has a dict, or the class has no default dict.
json ClassDict(const ConfigCase& config) {
  const json dict =
      json::parse(config.family().rope_parameters, nullptr, false);
  return config.Dicts().empty() && dict.is_object() ? dict : json();
}

// Returns the fix for a reader that ignores the scaling. The fix is to write
// the scaling of transformers' class into the file, or else to use another
// reader.
std::string ScalingFix(const ConfigCase& config, const ResolvedRope& ours) {
  const json dict = ClassDict(config);
  if (dict.is_null() || !ours.spec.rope_theta) {
    return Say("readers.never-scales", {});
  }
  return Say("readers.class-scales", {*ours.spec.rope_theta, dict.dump()});
}

// Returns the fix for a reader whose frequencies in a group of layers differ
// from the reference's. The fix is to change keys of the file, or else to use
// another reader.
std::string FrequencyFix(const ConfigCase& config, std::size_t group,
                         const Reading& reading) {
  const ResolvedRope& ours = *config.reference()->ropes[group];
  const ResolvedRope& theirs = *reading.ropes[group];
  const auto base = ours.spec.rope_theta, other = theirs.spec.rope_theta;
  if (IsScaled(ours) && !IsScaled(theirs)) return ScalingFix(config, ours);
  if (config.HasOtherBase()) return Say("readers.other-base", {});
  if (!base || !other || *base == *other) {
    return Say("readers.other-frequencies", {});
  }
  // Some classes with an entry for each layer type do not read a base outside
  // of the entries.
  if (config.family().dicts == interpretation::DictRule::kNested) {
    const json dict = ClassDict(config);
    return dict.is_null() ? Say("readers.other-frequencies", {})
                          : Say("readers.class-dict", {dict.dump()});
  }
  const std::string key = config.BaseKey(group, *base, *reading.reader);
  const bool is_free =
      !key.empty() && !config.Number(key) &&
      config.ReadsTheSame([&](json* part) { (*part)[key] = *base; });
  return is_free ? Say("readers.base-beside", {key, *base})
                 : Say("readers.other-frequencies", {});
}

// transformers, and vLLM since 0.30, read attention_factor. SGLang (every
// version) and vLLM before 0.30 read attn_factor. llama.cpp reads neither key.
// mlx-lm reads only mscale and mscale_all_dim.
constexpr absl::string_view kAmplitudeKeys[] = {"attention_factor",
                                                "attn_factor"};

// Returns the dict of YaRN if it has one of kAmplitudeKeys, else null.
const json* AmplitudeDict(const ConfigCase& config, const ResolvedRope& rope,
                          std::string* path) {
  const json* const dict = config.FlatDict(path);
  const bool has_key =
      dict != nullptr &&
      std::ranges::any_of(kAmplitudeKeys, [dict](absl::string_view key) {
        return NumberAt(*dict, key).has_value();
      });
  return has_key && std::holds_alternative<YarnScaling>(rope.spec.scaling)
             ? dict
             : nullptr;
}

std::string AmplitudeFix(const ConfigCase& config, const ResolvedRope& ours,
                         const ResolvedRope& theirs) {
  std::string path;
  const json* const dict = AmplitudeDict(config, ours, &path);
  const double wanted = ours.attention_factor;
  if (IsScaled(ours) && !IsScaled(theirs)) return ScalingFix(config, ours);
  if (dict == nullptr) return Say("amplitude.write", {wanted});
  if (!NumberAt(*dict, "attention_factor")) {
    return Say("amplitude.remove", {path, theirs.attention_factor});
  }
  const double factor = std::get<YarnScaling>(ours.spec.scaling).factor;
  const double multiplier =
      wanted / (factor > 1 ? 0.1 * std::log(factor) + 1 : 1);
  // If the dict has mscale and mscale_all_dim, SGLang multiplies their
  // amplitude by attn_factor.
  return wanted == 1 && !config.family().softmax_mscale
             ? Say("amplitude.mscale", {path, multiplier})
             : Say("amplitude.both", {path, multiplier, wanted});
}

// True for the reading of transformers, which is always the first one.
bool IsReference(const Reading& reading, const ConfigCase& config) {
  return &reading == &config.readings()[0];
}

// A difference from the reference that one or more readers have.
struct Difference {
  absl::string_view id;
  std::vector<std::string> values;  // for $2, $3, ... in the row's texts
  Severity severity;                // of the worst reader
  std::vector<std::string> keys = {};
  std::optional<std::vector<std::int32_t>> layers = {};
  std::vector<Verdict> readers = {};
};

// Adds a difference of one reader. Readers with the same difference share a
// finding, which names the layers of the first reader.
void AddDifference(Difference one, const Reading& reading,
                   std::vector<Difference>* all) {
  auto same = std::ranges::find_if(*all, [&](const auto& other) {
    return other.id == one.id && other.values == one.values;
  });
  if (same == all->end()) same = all->insert(same, one);
  same->readers.push_back(reading.verdict());
  same->severity = std::min(same->severity, one.severity);
}

void AddDifferences(const Reading& reading, const ConfigCase& config,
                    std::vector<Difference>* all) {
  if (!reading.status().ok()) {
    return AddDifference(
        {"readers.refuses",
         {reading.refusal()},
         IsReference(reading, config) ? Severity::kError : Severity::kWarning},
        reading, all);
  }
  const Verdict verdict = reading.verdict();
  for (std::size_t g = 0; g < reading.comparisons.size(); ++g) {
    const Comparison& comparison = reading.comparisons[g];
    const ResolvedRope& ours = *config.reference()->ropes[g];
    const ResolvedRope& theirs = *reading.ropes[g];
    const std::string difference = absl::StrCat(
        reading.comparisons.size() == 1 ? "" : config.groups()[g].Name() + ": ",
        Explanations(comparison));
    // Reports a difference only for the first group that has it.
    const auto tell = [&](bool Comparison::*which, Difference one) {
      const auto first = std::ranges::find(reading.comparisons, true, which);
      if (first != reading.comparisons.begin() + g) return;
      one.layers = LayersWhere(config, reading, which);
      AddDifference(std::move(one), reading, all);
    };
    tell(&Comparison::pairing,
         {"readers.pairing", {difference}, Severity::kError});
    tell(&Comparison::frequencies,
         {"readers.frequencies",
          {difference, FrequencyFix(config, g, reading)},
          SeverityOf(verdict)});
    std::string path;
    std::vector<std::string> keys;
    if (AmplitudeDict(config, ours, &path) != nullptr) {
      for (const absl::string_view key : kAmplitudeKeys) {
        keys.push_back(absl::StrCat(path, ".", key));
      }
    }
    tell(&Comparison::amplitude,
         {"readers.amplitude",
          {Digits(theirs.attention_factor), Digits(ours.attention_factor),
           keys.empty() ? "" : Say("amplitude.keys", {}),
           AmplitudeFix(config, ours, theirs)},
          SeverityOf(verdict.amplitude_ratio),
          keys});
    const double own = ours.softmax_scale_multiplier;
    const double other = theirs.softmax_scale_multiplier;
    // The multiplier changes logits in the same way as the square of an
    // amplitude.
    tell(&Comparison::softmax, {"readers.softmax",
                                {Digits(other), Digits(own)},
                                SeverityOf(std::sqrt(other / own))});
    tell(&Comparison::axes, {"readers.axes", {difference}, Severity::kWarning});
  }
}

// Runs the check readers.indexer. The indexer of sparse attention has the
// frequencies of its layer, but its own pairing.
void CheckIndexer(ConfigCase* config) {
  const Family& family = config->family();
  if (family.indexer == Pairing::kUnspecified) return;
  // If the class has no default width, the model has an indexer only if the
  // file gives a width.
  if (family.indexer_head_dim == 0 &&
      config->part().value(std::string(family.indexer_key), json()).is_null()) {
    return;
  }
  const auto ours = config->Indexer(*config->reference()->reader);
  if (!ours.ok()) {
    config->Add("config.warned", {FactOf(ours.status())}, {});
    return;
  }
  // Warnings of the layers are not repeated.
  std::set<std::string> said;
  for (const auto& rope : config->reference()->ropes) {
    said.insert(rope->warnings.begin(), rope->warnings.end());
  }
  for (const std::string& warning : ours->warnings) {
    if (said.insert(warning).second) {
      config->Add("config.warned", {warning}, {});
    }
  }
  std::vector<std::string> titles;
  std::vector<Verdict> verdicts;
  std::string difference;
  for (const Reading& reading : config->readings()) {
    const auto theirs = config->Indexer(*reading.reader);
    if (!theirs.ok()) continue;
    const Comparison comparison = Compare(*ours, *theirs, config->reach());
    if (!comparison.pairing) continue;
    difference = Explanations(comparison);
    titles.emplace_back(reading.reader->title);
    verdicts.push_back(VerdictOf(comparison, *reading.reader, *theirs));
  }
  if (verdicts.empty()) return;
  config->Add("readers.indexer", {absl::StrJoin(titles, ", "), difference},
              {config->KeyPath("indexer_rope_interleave")}, verdicts);
}

}  // namespace

void CheckReaders(ConfigCase* config) {
  if (config->reference() == nullptr) return;
  CheckIndexer(config);
  std::vector<Difference> all;
  const bool has_error = config->HasError();
  for (const Reading& reading : config->readings()) {
    const bool refuses = !reading.status().ok();
    // If transformers refuses the file and no finding is an error yet, the
    // refusal is reported as an error.
    const bool untold = refuses && !has_error && IsReference(reading, *config);
    if (untold ||
        (!config->IsExplained(reading) && (refuses || reading.differs()))) {
      AddDifferences(reading, *config, &all);
    }
  }
  for (const Difference& one : all) {
    std::vector<std::string> names;
    names.reserve(one.readers.size());
    for (const Verdict& verdict : one.readers) names.push_back(verdict.name);
    Values values = {absl::StrJoin(names, ", ")};
    values.insert(values.end(), one.values.begin(), one.values.end());
    Finding& finding = config->Add(one.id, values, one.keys, one.readers);
    finding.layers = one.layers;
    finding.severity = one.severity;
  }
}

}  // namespace posenc::core::doctor
