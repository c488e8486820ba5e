// gguf.*: a GGUF against the configuration that it was converted from, and its
// keys against each other.

#include <algorithm>
#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/error.h"
#include "core/model/compare.h"
#include "core/model/doctor/input_checks.h"

namespace posenc::core {
namespace {

// float32 keys and the converter's float32 arithmetic.
constexpr double kFloat32 = 1e-6;
constexpr double kFactors = 1e-5;

bool Differs(double a, double b, double tolerance) {
  return std::abs(a - b) > tolerance * std::max(std::abs(a), std::abs(b));
}

std::string NumbersText(const std::vector<double>& values) {
  return absl::StrCat("[",
                      absl::StrJoin(values, ", ",
                                    [](std::string* out, double value) {
                                      absl::StrAppend(out, PlainNumber(value));
                                    }),
                      "]");
}

class GgufChecks {
 public:
  GgufChecks(const DoctorInput& input, const ConfigCase* config,
             const Reach& reach, std::vector<Finding>* findings)
      : path_(input.path),
        gguf_(*input.gguf),
        config_(config),
        reach_(reach),
        findings_(findings) {}

  void Run() {
    FindReference();
    CheckAlone();
    if (reference_) {
      CheckBase();
      CheckDimension();
      CheckScaling();
      CheckSections();
      CheckSliding();
    }
    CheckFactors();
    CheckOriginalLength();
    if (reference_) {
      CheckAmplitude();
      CheckRest();
    }
  }

 private:
  // transformers' reading of the layers with full attention, llama.cpp's of the
  // same, and transformers' of those with a sliding window.
  void FindReference() {
    if (config_ == nullptr || config_->reference() == nullptr) return;
    std::size_t full = 0;
    for (std::size_t g = 0; g < config_->groups().size(); ++g) {
      if (!config_->reference()->ropes[g]->spec.nope) {
        full = g;
        break;
      }
    }
    const std::string text = config_->root().dump();
    const Reader& hf = *FindReader("hf");
    const Reader& llama_cpp = *FindReader("llama_cpp");
    if (config_->groups().size() > 1) {
      LayerGroup group;
      group.type = "sliding_attention";
      const auto sliding = ResolveText(text, hf, group, config_->reach());
      group.type = "full_attention";
      auto whole = ResolveText(text, hf, group, config_->reach());
      if (sliding.ok() && whole.ok() && !sliding->spec.nope &&
          !whole->spec.nope) {
        reference_ = *std::move(whole);
        sliding_ = *sliding;
        const auto own = ResolveText(text, llama_cpp, group, config_->reach());
        converted_ = own.ok() ? *own : *reference_;
        return;
      }
    }
    const ResolvedRope& first = *config_->reference()->ropes[full];
    if (first.spec.nope) return;
    reference_ = first;
    const auto own =
        ResolveText(text, llama_cpp, config_->groups()[full], config_->reach());
    converted_ = own.ok() ? *own : first;
  }

  Finding& Add(absl::string_view id, std::vector<std::string> values,
               const std::vector<std::string>& keys) {
    values.insert(values.begin(), path_);
    Finding finding = MakeFinding(id, values);
    finding.inputs = {path_};
    if (config_ != nullptr) finding.inputs.push_back(config_->path());
    finding.keys = keys;
    if (reference_) finding.readers = {VerdictOf(gguf_)};
    findings_->push_back(std::move(finding));
    return findings_->back();
  }

  // The GGUF against the reference; pairing is not compared, as rows are
  // permuted on conversion.
  Verdict VerdictOf(const GgufRope& gguf) const {
    Verdict verdict;
    const auto rope = ResolveGguf(gguf, reach_.length, false);
    if (rope.ok()) {
      verdict = Compare(*reference_, Alike(*rope, *reference_), reach_).verdict;
    } else {
      verdict.first_distance = 1;
      verdict.kept_at_length = 0;
    }
    verdict.name = "llama.cpp";
    verdict.says = absl::StrCat("2026: ", gguf.Describe());
    return verdict;
  }

  static ResolvedRope Alike(ResolvedRope rope, const ResolvedRope& like) {
    rope.spec.pairing = like.spec.pairing;
    rope.spec.slice = like.spec.slice;
    rope.head_dim = like.head_dim;
    return rope;
  }

  void CheckAlone() {
    if (gguf_.pairing == GgufPairing::kUnknown) {
      Add("gguf.unknown-architecture", {gguf_.architecture},
          {"general.architecture"})
          .readers.clear();
    }
    if (gguf_.yarn_ext_factor) {
      const double ext = *gguf_.yarn_ext_factor;
      if (ext > 0 && ext != 1) {
        const std::string key = gguf_.Key("rope.scaling.yarn_ext_factor");
        Add("gguf.yarn-ext-factor", {key, PlainNumber(ext)}, {key});
        explained_ = true;
        explained_ = true;
      }
    }
    std::vector<std::string> has;
    if (gguf_.factor && *gguf_.factor != 1) {
      has.push_back(
          absl::StrCat("scaling.factor ", PlainNumber(*gguf_.factor)));
    }
    if (!gguf_.rope_freqs.empty()) has.emplace_back("rope_freqs.weight");
    if (!gguf_.factors_long.empty()) {
      has.emplace_back("rope_factors_long.weight");
    }
    if (!has.empty() && gguf_.architecture != "gpt-oss") {
      Finding& finding =
          Add("gguf.other-loaders", {absl::StrJoin(has, " and ")},
              {gguf_.Key("rope.freq_base")});
      finding.readers.clear();
    }
  }

  void CheckBase() {
    if (!reference_->spec.rope_theta) return;
    const double base = *reference_->spec.rope_theta;
    if (!Differs(gguf_.Base(), base, kFloat32)) return;
    const std::string key = gguf_.Key("rope.freq_base");
    Add("gguf.freq-base",
        {key, gguf_.freq_base ? PlainNumber(*gguf_.freq_base) : "absent",
         PlainNumber(gguf_.Base()), PlainNumber(base)},
        {key});
    explained_ = true;
  }

  void CheckDimension() {
    const std::int64_t width = gguf_.RotaryDim();
    if (width == reference_->spec.rotary_dim || width == 0) return;
    const std::string key = gguf_.Key("rope.dimension_count");
    Add("gguf.dimension-count",
        {key,
         gguf_.dimension_count ? absl::StrCat(width)
                               : absl::StrCat("absent: the head's ", width),
         config_->path(), absl::StrCat(reference_->spec.rotary_dim)},
        {key});
    explained_ = true;
  }

  // The factor of the reference's scaling; 1 if it has none.
  double ReferenceFactor() const {
    const auto& scaling = reference_->spec.scaling;
    if (const auto* s = std::get_if<LinearScaling>(&scaling)) return s->factor;
    if (const auto* s = std::get_if<YarnScaling>(&scaling)) return s->factor;
    if (const auto* s = std::get_if<Llama3Scaling>(&scaling)) return s->factor;
    return 1;
  }

  bool IsLinear() const {
    return std::holds_alternative<LinearScaling>(reference_->spec.scaling);
  }
  bool IsYarn() const {
    return std::holds_alternative<YarnScaling>(reference_->spec.scaling);
  }
  // Scalings that a GGUF has as tensors.
  bool NeedsFreqs() const {
    const auto& scaling = reference_->spec.scaling;
    return std::holds_alternative<Llama3Scaling>(scaling) ||
           std::holds_alternative<ProportionalScaling>(scaling);
  }
  bool IsLongRope() const {
    return std::holds_alternative<LongRopeScaling>(reference_->spec.scaling);
  }
  bool HasTensors() const {
    return !gguf_.rope_freqs.empty() || !gguf_.factors_long.empty() ||
           !gguf_.factors_short.empty();
  }

  std::string ReferenceText() const {
    const std::string text = ScalingText(reference_->spec);
    return text.substr(0, text.find(','));
  }

  void CheckScaling() {
    if (!(IsLinear() || IsYarn()) || ReferenceFactor() == 1) return;
    const std::string key = gguf_.Key("rope.scaling.type");
    const std::string type = IsYarn() ? "yarn" : "linear";
    const double factor = ReferenceFactor();
    const bool none = gguf_.scaling_type && *gguf_.scaling_type == "none";
    if (none || (!gguf_.scaling_type && !gguf_.factor && !HasTensors())) {
      const auto* const yarn =
          std::get_if<YarnScaling>(&reference_->spec.scaling);
      const std::string flags = absl::StrCat(
          "--rope-scaling ", type, " --rope-scale ", PlainNumber(factor),
          yarn != nullptr ? absl::StrCat(" --yarn-orig-ctx ",
                                         yarn->original_max_position_embeddings)
                          : "");
      Finding& finding =
          Add("gguf.scaling-missing",
              {key, config_->path(), ReferenceText(), flags}, {key});
      if (none) {
        finding.message =
            absl::StrCat(path_, ": ", key, " is none, ", config_->path(),
                         " has ", ReferenceText());
      }
      explained_ = explained_amplitude_ = true;
    } else if (!gguf_.scaling_type && gguf_.factor && !IsLinear()) {
      Add("gguf.scaling-type-missing",
          {key, PlainNumber(*gguf_.factor), config_->path(), ReferenceText(),
           type},
          {key});
      explained_ = explained_amplitude_ = true;
    }
  }

  void CheckOriginalLength() {
    const std::string type = gguf_.ScalingType();
    if (!(type == "yarn" || type == "longrope") ||
        gguf_.original_context_length) {
      return;
    }
    const std::string key = gguf_.Key("rope.scaling.original_context_length");
    const std::string taken =
        gguf_.context_length ? absl::StrCat(*gguf_.context_length) : "nothing";
    std::int64_t original = 0;
    if (reference_) {
      original = reference_->original_max_position_embeddings;
      if (const auto* yarn =
              std::get_if<YarnScaling>(&reference_->spec.scaling)) {
        original = yarn->original_max_position_embeddings;
      }
    }
    const std::string wanted =
        original > 0 ? absl::StrCat(original) : "the original length";
    if (gguf_.context_length && *gguf_.context_length == original) return;
    Finding& finding =
        Add("gguf.original-length", {key, taken, wanted, wanted}, {key});
    if (!finding.readers.empty()) JudgeBySize(&finding);
    explained_ = explained_amplitude_ = true;
  }

  void BadTensor(const std::string& fact, const std::string& more = "") {
    Add("gguf.factor-tensors", {fact, more}, {"rope_freqs.weight"});
    explained_ = true;
  }

  // True if the list has as many values as there are pairs.
  bool CheckLength(const char* name, const std::vector<double>& list) {
    const auto pairs = static_cast<std::size_t>(
        reference_ ? reference_->spec.rotary_dim / 2 : gguf_.RotaryDim() / 2);
    if (list.empty() || pairs == 0 || list.size() == pairs) return true;
    BadTensor(absl::StrCat(name, " has ", list.size(), " values for ", pairs,
                           " pairs"));
    return false;
  }

  void CheckFactors() {
    bool right_length = CheckLength("rope_freqs.weight", gguf_.rope_freqs);
    right_length &= CheckLength("rope_factors_long.weight", gguf_.factors_long);
    right_length &=
        CheckLength("rope_factors_short.weight", gguf_.factors_short);
    if (!gguf_.rope_freqs.empty() && gguf_.factor && *gguf_.factor != 1 &&
        gguf_.ScalingType() != "none") {
      BadTensor(absl::StrCat("rope_freqs.weight stands beside ",
                             gguf_.Key("rope.scaling.factor"), " ",
                             PlainNumber(*gguf_.factor), ": both apply"),
                ", or --rope-scaling none");
      return;
    }
    if (gguf_.factors_long.empty() != gguf_.factors_short.empty()) {
      BadTensor(absl::StrCat(gguf_.factors_long.empty()
                                 ? "rope_factors_long.weight"
                                 : "rope_factors_short.weight",
                             " is absent beside the other list"));
      return;
    }
    if (!reference_ || !right_length) return;
    if (NeedsFreqs() && gguf_.rope_freqs.empty()) {
      // Factor 1 scales nothing.
      if (ReferenceFactor() == 1 &&
          std::holds_alternative<Llama3Scaling>(reference_->spec.scaling)) {
        return;
      }
      return BadTensor(absl::StrCat("rope_freqs.weight is absent, ",
                                    config_->path(), " has ", ReferenceText()));
    }
    if (IsLongRope()) {
      CheckLists();
    } else if (!gguf_.rope_freqs.empty()) {
      CheckFreqs();
    }
  }

  void CheckLists() {
    const auto& lists = std::get<LongRopeScaling>(reference_->spec.scaling);
    if (gguf_.factors_long.empty()) {
      return BadTensor(
          absl::StrCat("rope_factors_long.weight and "
                       "rope_factors_short.weight are absent, ",
                       config_->path(), " has longrope"));
    }
    const auto differs = [](const std::vector<double>& a,
                            const std::vector<double>& b) {
      for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
        if (Differs(a[i], b[i], kFactors)) return static_cast<int>(i);
      }
      return -1;
    };
    const auto tell = [&](const char* name, const std::vector<double>& ours,
                          const std::vector<double>& theirs) {
      const int i = differs(ours, theirs);
      if (i < 0) return;
      BadTensor(absl::StrCat(name, " has ", PlainNumber(ours[i]), " for pair ",
                             i, ", ", config_->path(), " ",
                             PlainNumber(theirs[i])));
    };
    tell("rope_factors_long.weight", gguf_.factors_long, lists.long_factor);
    tell("rope_factors_short.weight", gguf_.factors_short, lists.short_factor);
  }

  // rope_freqs are the geometric frequencies over the scaled ones.
  void CheckFreqs() {
    if (!reference_->spec.rope_theta) return;
    const auto n = gguf_.rope_freqs.size();
    if (reference_->inv_freq.size() != n) return;
    double most = 0;
    for (std::size_t i = 0; i < n; ++i) {
      const double w =
          std::pow(*reference_->spec.rope_theta,
                   -static_cast<double>(i) / static_cast<double>(n));
      const double scaled = reference_->inv_freq[i];
      if (scaled == 0) {  // a pair that stands still has an endless factor
        if (gguf_.rope_freqs[i] < 1e20) most = 1;
      } else if (Differs(gguf_.rope_freqs[i], w / scaled, kFactors)) {
        most = 1;
      }
    }
    if (most == 0) return;
    const double fits =
        *std::max_element(gguf_.rope_freqs.begin(), gguf_.rope_freqs.end());
    if (NeedsFreqs() && Differs(fits, ReferenceFactor(), kFactors) &&
        ReferenceFactor() != 1) {
      return BadTensor(absl::StrCat("rope_freqs.weight fits factor ",
                                    PlainNumber(fits), ", ", config_->path(),
                                    " says ", PlainNumber(ReferenceFactor())));
    }
    BadTensor(absl::StrCat("rope_freqs.weight has factors up to ",
                           PlainNumber(fits), ", and ", config_->path(),
                           " has ", ReferenceText()));
  }

  // mrope_section as the configuration has it.
  std::vector<double> ConfigSections() const {
    for (const NamedDict& named : config_->Dicts()) {
      const auto it = named.dict->find("mrope_section");
      if (it == named.dict->end() || !it->is_array()) continue;
      std::vector<double> sections;
      for (const auto& value : *it) {
        if (value.is_number()) sections.push_back(value.get<double>());
      }
      return sections;
    }
    return {};
  }

  void CheckSections() {
    std::vector<double> wanted = ConfigSections();
    if (wanted.empty()) return;
    std::vector<double> ours = gguf_.sections;
    const std::string shown = ours.empty() ? "absent" : NumbersText(ours);
    const std::string theirs = NumbersText(wanted);
    wanted.resize(4);
    ours.resize(4);
    if (ours == wanted) return;
    const std::string key = gguf_.Key("rope.dimension_sections");
    Add("gguf.sections",
        {key, shown, config_->path(), theirs, NumbersText(wanted)}, {key});
  }

  void CheckSliding() {
    if (!sliding_) return;
    const auto tell = [&](const char* name, const std::string& is,
                          const std::string& wanted, const char* type) {
      const std::string key = gguf_.Key(name);
      Add("gguf.swa", {key, is, config_->path(), wanted, type}, {key});
    };
    // llama.cpp has Gemma 3's local base in its code.
    const double otherwise =
        gguf_.architecture == "gemma3" || gguf_.architecture == "gemma3n"
            ? 10000
            : gguf_.Base();
    const double base = gguf_.freq_base_swa.value_or(otherwise);
    if (sliding_->spec.rope_theta &&
        Differs(base, *sliding_->spec.rope_theta, kFloat32)) {
      tell("rope.freq_base_swa",
           gguf_.freq_base_swa ? PlainNumber(base)
                               : absl::StrCat("absent: ", PlainNumber(base)),
           absl::StrCat("", PlainNumber(*sliding_->spec.rope_theta)), "float");
    }
    const std::int64_t width =
        gguf_.dimension_count_swa.value_or(gguf_.RotaryDim());
    if (width != 0 && width != sliding_->spec.rotary_dim) {
      tell("rope.dimension_count_swa",
           gguf_.dimension_count_swa ? absl::StrCat(width)
                                     : absl::StrCat("absent: ", width),
           absl::StrCat(sliding_->spec.rotary_dim), "int");
    }
  }

  void CheckAmplitude() {
    if (explained_amplitude_) return;
    const auto rope = ResolveGguf(gguf_, reach_.length, false);
    if (!rope.ok() || !Differs(rope->attention_factor,
                               reference_->attention_factor, kFloat32)) {
      return;
    }
    const bool multiplier = gguf_.attn_factor.has_value();
    const std::string key =
        gguf_.Key(multiplier ? "rope.scaling.attn_factor"
                             : "rope.scaling.yarn_log_multiplier");
    Finding& finding =
        Add("gguf.amplitude",
            {PlainNumber(rope->attention_factor),
             multiplier || gguf_.yarn_log_multiplier
                 ? key
                 : absl::StrCat(key, " (absent)"),
             PlainNumber(reference_->attention_factor), config_->path()},
            {key});
    Verdict amplitude = finding.readers[0];
    amplitude.first_distance = -1;
    amplitude.least_kept = 1;
    finding.severity = SeverityOf(amplitude);
  }

  // Frequencies that differ although nothing above says why.
  void CheckRest() {
    if (explained_) return;
    const auto rope = ResolveGguf(gguf_, reach_.length, false);
    if (!rope.ok() || rope->inv_freq.size() != converted_->inv_freq.size()) {
      return;
    }
    const ResolvedRope own = Alike(*rope, *converted_);
    const RopeDifference difference = CompareRopes(*converted_, own);
    if (difference.max_relative_frequency_difference <= 4 * kFloat32) return;
    Finding& finding =
        Add("readers.frequencies",
            {"llama.cpp",
             absl::StrCat("the file has ", gguf_.Describe(), ", and ",
                          config_->path(), " ", DescribeRope(*reference_)),
             "convert it anew from this configuration"},
            {gguf_.Key("rope.scaling.factor")});
    JudgeBySize(&finding);
  }

  const std::string& path_;
  const GgufRope& gguf_;
  const ConfigCase* config_;
  const Reach& reach_;
  std::vector<Finding>* findings_;
  std::optional<ResolvedRope> reference_, converted_, sliding_;
  bool explained_ = false;
  bool explained_amplitude_ = false;
};

}  // namespace

void CheckGguf(const DoctorInput& input, const ConfigCase* config,
               const Reach& reach, std::vector<Finding>* findings) {
  GgufChecks(input, config, reach, findings).Run();
}

}  // namespace posenc::core
