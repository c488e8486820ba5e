// readers.*: differences between readers that no check of a configuration
// explains.

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "core/doctor/config_case.h"
#include "core/error.h"

namespace posenc::core::doctor {
namespace {

// Returns the layers of the groups for which `which` holds; nullopt if it holds
// for all groups.
std::optional<std::vector<std::int32_t>> LayersWhere(const ConfigCase& config,
                                                     const Reading& reading,
                                                     bool Comparison::*which) {
  std::vector<std::int32_t> layers;
  bool all = true;
  for (std::size_t g = 0; g < reading.comparisons.size(); ++g) {
    if (!(reading.comparisons[g].*which)) {
      all = false;
      continue;
    }
    const auto& of_group = config.groups()[g].layers;
    layers.insert(layers.end(), of_group.begin(), of_group.end());
  }
  if (all || layers.empty()) return std::nullopt;
  return layers;
}

// Returns the comparison of the first group for which `which` holds, or null.
const Comparison* First(const Reading& reading, bool Comparison::*which,
                        std::size_t* group) {
  for (std::size_t g = 0; g < reading.comparisons.size(); ++g) {
    if (!(reading.comparisons[g].*which)) continue;
    *group = g;
    return &reading.comparisons[g];
  }
  return nullptr;
}

std::string Digits(double value) { return absl::StrFormat("%.6g", value); }

std::string Explanations(const Comparison& comparison) {
  std::vector<std::string> shown;
  for (const std::string& text : comparison.explanations) {
    if (text.rfind("amplitude", 0) == 0 || text.rfind("softmax", 0) == 0) {
      continue;
    }
    shown.push_back(text);
  }
  return shown.empty() ? "by the last bits" : absl::StrJoin(shown, "; ");
}

// The fix if a reader ignores a scaling that no other check criticises.
constexpr absl::string_view kNeverScales =
    "run it with another reader: this one does not scale such a model as the "
    "file says";

// The fix if the file leaves its scaling to transformers' class, which other
// readers ignore.
std::string ClassScaling(const ConfigCase& config, const ResolvedRope& ours) {
  const nlohmann::json dict =
      nlohmann::json::parse(config.family().rope_parameters, nullptr, false);
  if (!config.Dicts().empty() || !dict.is_object() || !ours.spec.rope_theta) {
    return std::string(kNeverScales);
  }
  return absl::StrCat("write what transformers' class takes into the file: ",
                      "\"rope_theta\": ", PlainNumber(*ours.spec.rope_theta),
                      ", \"rope_scaling\": ", dict.dump());
}

// Returns the fix for other frequencies: a key, or else another reader.
std::string FrequencyFix(const ConfigCase& config, const ResolvedRope& ours,
                         const ResolvedRope& theirs) {
  if (ours.spec.scaling.index() != 0 && theirs.spec.scaling.index() == 0) {
    return ClassScaling(config, ours);
  }
  if (config.HasOtherBase()) {
    return "write the base that the model was trained with as rope_theta, "
           "which every reader looks for";
  }
  if (ours.spec.rope_theta && theirs.spec.rope_theta &&
      *ours.spec.rope_theta != *theirs.spec.rope_theta &&
      !config.Number("rope_theta")) {
    return absl::StrCat(
        "write \"rope_theta\": ", PlainNumber(*ours.spec.rope_theta),
        " beside the dict, where every reader looks for it");
  }
  return "run it with the reference's reader where these distances matter, or "
         "spell the scaling with keys that both read";
}

// transformers reads attention_factor; SGLang and vLLM before 0.30 read
// attn_factor; llama.cpp reads neither; mlx-lm reads only the mscale pair.
constexpr absl::string_view kAmplitudeKeys[] = {"attention_factor",
                                                "attn_factor"};

// Returns the dict of YaRN with such a key, or null.
const nlohmann::json* AmplitudeDict(const ConfigCase& config,
                                    const ResolvedRope& rope,
                                    std::string* path) {
  const nlohmann::json* const dict = config.FlatDict(path);
  if (dict == nullptr ||
      !std::holds_alternative<YarnScaling>(rope.spec.scaling)) {
    return nullptr;
  }
  for (const absl::string_view key : kAmplitudeKeys) {
    if (config.Number(*dict, key)) return dict;
  }
  return nullptr;
}

std::string AmplitudeFix(const ConfigCase& config, const ResolvedRope& ours,
                         const ResolvedRope& theirs) {
  std::string path;
  const nlohmann::json* const dict = AmplitudeDict(config, ours, &path);
  const double wanted = ours.attention_factor;
  if (ours.spec.scaling.index() != 0 && theirs.spec.scaling.index() == 0) {
    return ClassScaling(config, ours);
  }
  if (dict == nullptr) {
    return absl::StrCat("write \"attention_factor\": ", PlainNumber(wanted),
                        ", or use another reader");
  }
  if (!config.Number(*dict, "attention_factor")) {
    return absl::StrCat("remove \"attn_factor\" from ", path,
                        "; or, if the model was trained with it, add "
                        "\"attention_factor\": ",
                        PlainNumber(theirs.attention_factor), " beside it");
  }
  const std::string flag =
      "; for llama.cpp --override-kv "
      "ARCHITECTURE.rope.scaling.attn_factor=float:";
  const double factor = std::get<YarnScaling>(ours.spec.scaling).factor;
  const double implied = factor > 1 ? 0.1 * std::log(factor) + 1 : 1;
  const std::string multiplier = PlainNumber(wanted / implied);
  // SGLang would multiply the mscale pair's factor by attn_factor.
  if (wanted == 1 && !config.family().softmax_mscale) {
    return absl::StrCat("write \"mscale\": 1 and \"mscale_all_dim\": 1 in ",
                        path, ", without \"attn_factor\"", flag, multiplier);
  }
  return absl::StrCat("write both in ", path,
                      ": \"attention_factor\": ", PlainNumber(wanted),
                      " and \"attn_factor\": ", multiplier, flag, multiplier);
}

// Reports differences, reader by reader; readers that differ alike share a
// finding.
class ReaderChecks {
 public:
  explicit ReaderChecks(ConfigCase* config)
      : config_(config), reference_(*config->reference()) {}

  void Check(const Reading& reading) {
    if (const absl::Status status = reading.status(); !status.ok()) {
      Add("readers.refuses", {FactOf(status)}, reading, std::nullopt,
          Severity::kWarning);
      return;
    }
    std::size_t g = 0;
    if (const auto* c = First(reading, &Comparison::pairing, &g)) {
      Add("readers.pairing", {Explanations(*c)}, reading,
          LayersWhere(*config_, reading, &Comparison::pairing),
          Severity::kError);
    }
    if (const auto* c = First(reading, &Comparison::frequencies, &g)) {
      Add("readers.frequencies",
          {Explanations(*c),
           FrequencyFix(*config_, *reference_.ropes[g], *reading.ropes[g])},
          reading, LayersWhere(*config_, reading, &Comparison::frequencies),
          SeverityOf(reading.verdict()));
    }
    if (First(reading, &Comparison::amplitude, &g) != nullptr) {
      // Frequencies have their own finding.
      Verdict amplitude = reading.verdict();
      amplitude.first_distance = -1;
      amplitude.least_kept = 1;
      const ResolvedRope& ours = *reference_.ropes[g];
      const ResolvedRope& theirs = *reading.ropes[g];
      std::string path;
      const bool by_keys = AmplitudeDict(*config_, ours, &path) != nullptr;
      Finding& finding =
          Add("readers.amplitude",
              {Digits(theirs.attention_factor), Digits(ours.attention_factor),
               by_keys ? "; transformers reads attention_factor, SGLang and "
                         "vLLM before 0.30 attn_factor"
                       : "",
               AmplitudeFix(*config_, ours, theirs)},
              reading, LayersWhere(*config_, reading, &Comparison::amplitude),
              SeverityOf(amplitude));
      if (by_keys && finding.keys.empty()) {
        for (const absl::string_view key : kAmplitudeKeys) {
          finding.keys.push_back(absl::StrCat(path, ".", key));
        }
      }
    }
    if (First(reading, &Comparison::softmax, &g) != nullptr) {
      const double ours = reference_.ropes[g]->softmax_scale_multiplier;
      const double theirs = reading.ropes[g]->softmax_scale_multiplier;
      // Like the square of an amplitude, it multiplies logits.
      Verdict softmax;
      softmax.amplitude_ratio = std::sqrt(theirs / ours);
      Add("readers.softmax", {Digits(theirs), Digits(ours)}, reading,
          LayersWhere(*config_, reading, &Comparison::softmax),
          SeverityOf(softmax));
    }
    if (const auto* c = First(reading, &Comparison::axes, &g)) {
      Add("readers.axes", {Explanations(*c)}, reading,
          LayersWhere(*config_, reading, &Comparison::axes),
          Severity::kWarning);
    }
  }

 private:
  // `values` follow the reader's name in the row's text. The reference is valid
  // until the next call.
  Finding& Add(absl::string_view id, std::vector<std::string> values,
               const Reading& reading,
               std::optional<std::vector<std::int32_t>> layers,
               Severity severity) {
    Shared& shared =
        shared_[absl::StrCat(id, "\n", absl::StrJoin(values, "\n"))];
    shared.titles.emplace_back(reading.reader->title);
    values.insert(values.begin(), absl::StrJoin(shared.titles, ", "));
    if (shared.titles.size() == 1) {
      shared.index = config_->findings().size();
      Finding& finding = config_->Add(id, values, {});
      finding.readers = {reading.verdict()};
      finding.layers = std::move(layers);
      finding.severity = severity;
      return finding;
    }
    Finding& finding = config_->findings()[shared.index];
    values.insert(values.begin(), config_->path());
    const Finding renamed = MakeFinding(id, values);
    finding.message = renamed.message;
    finding.fix = renamed.fix;
    finding.readers.push_back(reading.verdict());
    finding.severity = std::min(finding.severity, severity);
    return finding;
  }

  struct Shared {
    std::size_t index = 0;
    std::vector<std::string> titles;
  };
  ConfigCase* config_;
  const Reading& reference_;
  std::map<std::string, Shared> shared_;
};

// readers.indexer: an indexer has its layer's frequencies, but its own pairs.
void CheckIndexer(ConfigCase* config) {
  if (config->family().indexer == Pairing::kUnspecified) return;
  const auto ours = config->Indexer(*config->reference()->reader);
  if (!ours.ok()) {
    config->Add("config.warned", {FactOf(ours.status())}, {});
    return;
  }
  // CheckWarnings() tells the warnings that the layers have, too.
  std::set<std::string> of_layers;
  for (const auto& rope : config->reference()->ropes) {
    of_layers.insert(rope->warnings.begin(), rope->warnings.end());
  }
  for (const std::string& warning : ours->warnings) {
    if (of_layers.count(warning) > 0) continue;
    config->Add("config.warned", {warning}, {});
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
  Finding& finding =
      config->Add("readers.indexer", {absl::StrJoin(titles, ", "), difference},
                  {config->KeyPath("indexer_rope_interleave")});
  finding.readers = std::move(verdicts);
}

}  // namespace

void CheckReaders(ConfigCase* config) {
  if (config->reference() == nullptr) return;
  CheckIndexer(config);
  ReaderChecks checks(config);
  for (const Reading& reading : config->readings()) {
    if (!config->IsExplained(reading) &&
        (!reading.status().ok() || reading.differs())) {
      checks.Check(reading);
    }
  }
}

}  // namespace posenc::core::doctor
