// readers.*: differences of a reader that no check of a configuration explains.

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "core/error.h"
#include "core/model/doctor/config_case.h"

namespace posenc::core {
namespace {

// Layers of the groups for which `which` holds; nullopt if that is all of them.
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

// The first group in which it differs.
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

constexpr char kFrequencyFix[] =
    "run it with the reference's reader where these distances matter, or spell "
    "the scaling with keys that both read";

// llama.cpp, SGLang, and vLLM before 0.30, read attn_factor; transformers
// attention_factor.
std::string AmplitudeFix(const ResolvedRope& reference) {
  return absl::StrCat("write both \"attention_factor\": ",
                      PlainNumber(reference.attention_factor),
                      " and the \"attn_factor\" that gives it");
}

// Says what differs, reader by reader; readers that differ alike share a
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
      Add("readers.frequencies", {Explanations(*c), kFrequencyFix}, reading,
          LayersWhere(*config_, reading, &Comparison::frequencies),
          SeverityOf(reading.verdict()));
    }
    if (First(reading, &Comparison::amplitude, &g) != nullptr) {
      // Its frequencies have a finding of their own.
      Verdict amplitude = reading.verdict();
      amplitude.first_distance = -1;
      amplitude.least_kept = 1;
      Add("readers.amplitude",
          {Digits(reading.ropes[g]->attention_factor),
           Digits(reference_.ropes[g]->attention_factor),
           AmplitudeFix(*reference_.ropes[g])},
          reading, LayersWhere(*config_, reading, &Comparison::amplitude),
          SeverityOf(amplitude));
    }
    if (First(reading, &Comparison::softmax, &g) != nullptr) {
      const double ours = reference_.ropes[g]->softmax_scale_multiplier;
      const double theirs = reading.ropes[g]->softmax_scale_multiplier;
      // A factor on logits, as the square of an amplitude is.
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
  // `values` follow the reader's name in the row's text.
  void Add(absl::string_view id, std::vector<std::string> values,
           const Reading& reading,
           std::optional<std::vector<std::int32_t>> layers, Severity severity) {
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
      return;
    }
    Finding& finding = config_->findings()[shared.index];
    values.insert(values.begin(), config_->path());
    const Finding renamed = MakeFinding(id, values);
    finding.message = renamed.message;
    finding.fix = renamed.fix;
    finding.readers.push_back(reading.verdict());
    finding.severity = std::min(finding.severity, severity);
  }

  struct Shared {
    std::size_t index = 0;
    std::vector<std::string> titles;
  };
  ConfigCase* config_;
  const Reading& reference_;
  std::map<std::string, Shared> shared_;
};

}  // namespace

void CheckReaders(ConfigCase* config) {
  if (config->reference() == nullptr) return;
  ReaderChecks checks(config);
  for (const Reading& reading : config->readings()) {
    if (!config->IsExplained(reading) &&
        (!reading.status().ok() || reading.differs())) {
      checks.Check(reading);
    }
  }
}

}  // namespace posenc::core
