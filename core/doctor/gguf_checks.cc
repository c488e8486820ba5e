// gguf.*: the checks of a GGUF file after a command line has changed its keys.
// They compare the file with the configuration from which it was converted, and
// the file's keys with each other.

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "core/doctor/input_checks.h"
#include "core/interpretation/compare.h"

namespace posenc::core::doctor {
namespace {

using interpretation::GgufPairing;
using interpretation::GgufRope;

// Relative tolerance of keys, which the converter computes and stores in
// float32.
constexpr double kTolerance = 1e-6;
// Relative tolerance of factors, which converters compute in float32.
constexpr double kFactors = 1e-5;

// True if a and b differ by more than a relative tolerance.
bool DiffersBy(double a, double b, double tolerance = kTolerance) {
  return std::abs(a - b) > tolerance * std::max(std::abs(a), std::abs(b));
}

// Tensors of factors, by their names in the file.
struct FactorList {
  const char* name;
  std::vector<double> GgufRope::*values;
};
constexpr FactorList kLists[] = {
    {"rope_freqs.weight", &GgufRope::rope_freqs},
    {"rope_factors_long.weight", &GgufRope::factors_long},
    {"rope_factors_short.weight", &GgufRope::factors_short},
};

class GgufChecks {
 public:
  GgufChecks(const DoctorInput& input, const std::vector<DoctorInput>& all,
             const ConfigCase* config, const Runtime& runtime,
             const Reach& reach, std::vector<Finding>* findings)
      : path_(input.path),
        file_(*input.gguf),
        gguf_(file_),
        all_(all),
        config_(config),
        config_path_(config == nullptr ? "" : config->path()),
        runtime_(runtime),
        reach_(reach),
        findings_(findings) {
    ApplyRuntime(runtime, &gguf_);
    FindReference();
  }

  void Run() {
    CheckAlone();
    CheckSections();
    if (reference_) {
      CheckBase();
      CheckDimension();
      CheckScaling();
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
  void FindReference() {
    if (config_ == nullptr || config_->reference() == nullptr) return;
    const auto& groups = config_->groups();
    const auto resolve = [&](const char* reader, const LayerGroup& group) {
      auto rope = doctor::Resolve(config_->root(), *FindReader(reader), group,
                                  config_->reach());
      return rope.ok() ? std::optional(*std::move(rope)) : std::nullopt;
    };
    LayerGroup full, local;
    full.type = "full_attention";
    local.type = "sliding_attention";
    if (groups.size() > 1) {
      reference_ = resolve("hf", full);
      sliding_ = resolve("hf", local);
    }
    if (!reference_ || !sliding_ || reference_->spec.nope ||
        sliding_->spec.nope) {
      sliding_.reset();
      const auto& ropes = config_->reference()->ropes;
      const auto turns =
          std::find_if(ropes.begin(), ropes.end(),
                       [](const auto& rope) { return !rope->spec.nope; });
      reference_.reset();
      if (turns == ropes.end()) return;
      reference_ = **turns;
      full = groups[static_cast<std::size_t>(turns - ropes.begin())];
    }
    converted_ = resolve("llama_cpp", full);
    if (!converted_) converted_ = reference_;
  }

  // Adds a finding. In the texts of the row, $0 is the file's path, and
  // `values` are $1, $2, ...
  Finding& Add(absl::string_view id, Values values,
               std::vector<std::string> keys) {
    values.insert(values.begin(), path_);
    std::vector<std::string> inputs = {path_};
    if (config_ != nullptr) inputs.push_back(config_path_);
    std::vector<Verdict> readers;
    if (reference_) readers.push_back(FileVerdict());
    return AddFinding(id, values, std::move(inputs), std::move(keys), findings_,
                      std::move(readers));
  }

  // Adds a finding that explains the differing frequencies, so that no other
  // finding about frequencies is needed.
  Finding& Explain(absl::string_view id, const Values& values,
                   std::vector<std::string> keys) {
    explained_ = true;
    return Add(id, values, std::move(keys));
  }

  // Resolves the file with the pairing and slice of `like`. These are not
  // compared, because the conversion permutes rows.
  std::optional<ResolvedRope> Resolve(const ResolvedRope& like) const {
    auto rope = interpretation::ResolveGguf(gguf_, reach_.length, false);
    if (!rope.ok()) return std::nullopt;
    rope->spec.pairing = like.spec.pairing;
    rope->spec.slice = like.spec.slice;
    rope->head_dim = like.head_dim;
    return *std::move(rope);
  }

  // Compares the file with the reference.
  Verdict FileVerdict() const {
    Verdict verdict;
    if (const auto rope = Resolve(*reference_)) {
      verdict = Compare(*reference_, *rope, reach_).verdict;
    } else {
      verdict.first_distance = 1;
      verdict.kept_at_length = 0;
    }
    verdict.name = "llama.cpp";
    verdict.says = absl::StrCat("2026: ", gguf_.Describe());
    return verdict;
  }

  template <typename Scaling>
  const Scaling* ReferenceScaling() const {
    return reference_ ? std::get_if<Scaling>(&reference_->spec.scaling)
                      : nullptr;
  }
  const YarnScaling* Yarn() const { return ReferenceScaling<YarnScaling>(); }
  double ReferenceFactor() const {
    return FactorOf(reference_->spec).value_or(1);
  }
  // The base of the reference, raised by static NTK scaling, which a GGUF has
  // in its base.
  double ReferenceBase(double otherwise) const {
    const double base = reference_->spec.rope_theta.value_or(otherwise);
    const auto* const ntk = ReferenceScaling<NtkScaling>();
    const double d = reference_->spec.rotary_dim;
    return ntk && d > 2 ? base * std::pow(ntk->factor, d / (d - 2)) : base;
  }
  // "yarn by 4 from 32768"
  std::string ReferenceText() const {
    const std::string text = interpretation::ScalingText(reference_->spec);
    return text.substr(0, text.find(','));
  }

  std::vector<std::string> Tensors() const {
    std::vector<std::string> names;
    for (const FactorList& list : kLists) {
      if (!(file_.*list.values).empty()) names.emplace_back(list.name);
    }
    return names;
  }

  void CheckAlone() {
    if (gguf_.pairing == GgufPairing::kUnknown) {
      Add("gguf.unknown-architecture", {gguf_.architecture},
          {"general.architecture"})
          .readers.clear();
    }
    const double ext = gguf_.yarn_ext_factor.value_or(0);
    if (ext > 0 && ext != 1) {
      const std::string key = gguf_.Key("rope.scaling.yarn_ext_factor");
      Explain("gguf.yarn-ext-factor", {key, ext}, {key});
    }
    std::vector<std::string> has = Tensors();
    if (const double factor = file_.factor.value_or(1); factor != 1) {
      has.push_back(absl::StrCat("scaling.factor ", PlainNumber(factor)));
    }
    if (!has.empty() && gguf_.architecture != "gpt-oss") {
      Add("gguf.other-loaders", {absl::StrJoin(has, " and ")},
          {gguf_.Key("rope.freq_base")})
          .readers.clear();
    }
  }

  // Reports a number in the file that differs from the configuration's number.
  // `is` describes the number that llama.cpp takes: if the key is absent, or a
  // flag replaces it, `is` says so.
  Finding* CheckNumber(absl::string_view id, const char* name, double taken,
                       double wanted, const char* type, const std::string& is) {
    if (!DiffersBy(taken, wanted)) return nullptr;
    const std::string key = gguf_.Key(name);
    return &Add(id, {key, is, config_path_, wanted, type}, {key});
  }

  static std::string GivenOr(const char* otherwise, bool given, double taken) {
    return absl::StrCat(given ? "" : otherwise, PlainNumber(taken));
  }

  void CheckBase() {
    const double taken = gguf_.Base();
    const double base = ReferenceBase(taken);
    const bool by_flag = runtime_.Find("--rope-freq-base") != nullptr;
    Finding* const finding = CheckNumber(
        "gguf.freq-base", "rope.freq_base", taken, base, "float",
        absl::StrCat(GivenOr("absent: ", gguf_.freq_base.has_value(), taken),
                     by_flag ? " by --rope-freq-base" : ""));
    if (finding == nullptr) return;
    explained_ = true;
    if (by_flag) {
      finding->fix = absl::StrCat(
          "give --rope-freq-base ", PlainNumber(base),
          DiffersBy(file_.Base(), base) ? "" : ", or leave it out");
    } else if (const std::string table = TableWithBase(taken);
               gguf_.freq_base && !table.empty()) {
      finding->fix = Say("gguf.table-has-base",
                         {taken, config_path_, table, finding->fix});
    }
  }

  // Returns the path of a checkpoint that has a saved table with this base,
  // else "".
  std::string TableWithBase(double base) const {
    for (const DoctorInput& input : all_) {
      for (const SavedTable& table : input.tables) {
        const auto fitted = FittedBase(table);
        if (input.kind == InputKind::kSafetensors && fitted &&
            !DiffersBy(*fitted, base, 2e-4)) {
          return input.path;
        }
      }
    }
    return "";
  }

  void CheckDimension() {
    const auto width = static_cast<double>(gguf_.RotaryDim());
    if (width == 0) return;
    explained_ |= CheckNumber("gguf.dimension-count", "rope.dimension_count",
                              width, reference_->spec.rotary_dim, "int",
                              GivenOr("absent: the head's ",
                                      gguf_.dimension_count.has_value(),
                                      width)) != nullptr;
  }

  std::string OriginalFlag() const {
    return absl::StrCat(" --yarn-orig-ctx ",
                        Yarn()->original_max_position_embeddings);
  }

  // Returns flags of llama.cpp that express the reference's scaling.
  std::string ScalingFlags() const {
    const bool yarn = Yarn() != nullptr;
    return absl::StrCat("--rope-scaling ", yarn ? "yarn" : "linear",
                        " --rope-scale ", PlainNumber(ReferenceFactor()),
                        yarn ? OriginalFlag() : "");
  }

  // Returns the flags of the command line that scale; "" if no flag scales.
  std::string FlagsThatScale() const {
    std::vector<std::string> given;
    for (const char* flag : {"--rope-scaling", "--rope-scale",
                             "--rope-freq-scale", "--yarn-orig-ctx"}) {
      if (const std::string* const value = runtime_.Find(flag)) {
        given.push_back(absl::StrCat(flag, " ", *value));
      }
    }
    return absl::StrJoin(given, " ");
  }

  void CheckScaling() {
    const bool yarn = Yarn() != nullptr;
    if (!yarn && ReferenceScaling<LinearScaling>() == nullptr &&
        IsScaled(*reference_)) {
      return;  // tensors of factors scale it
    }
    if (ReferenceFactor() == 1) return CheckUnscaled();
    const std::string key = gguf_.Key("rope.scaling.type");
    const char* const type = yarn ? "yarn" : "linear";
    const bool none = gguf_.scaling_type == "none";
    const bool by_flag = none && file_.ScalingType() != "none";
    if (none || (!gguf_.scaling_type && !gguf_.factor && Tensors().empty())) {
      Finding& finding = Explain(
          "gguf.scaling-missing",
          {key, none ? "none" : "absent", by_flag ? " by --rope-scaling" : "",
           config_path_, ReferenceText(), ScalingFlags()},
          {key});
      if (by_flag) finding.fix = "leave out --rope-scaling none";
    } else if (!gguf_.scaling_type && gguf_.factor && yarn) {
      Explain("gguf.scaling-type-missing",
              {key, *gguf_.factor, config_path_, ReferenceText(), type,
               gguf_.original_context_length ? "" : OriginalFlag()},
              {key});
    } else {
      return CheckOtherScaling(type);
    }
    explained_amplitude_ = true;
  }

  // Reports a scaling in the file or in flags, if the reference has no scaling.
  void CheckUnscaled() {
    const double factor = gguf_.factor.value_or(1);
    if (gguf_.ScalingType() == "none" || factor == 1 || !Tensors().empty())
      return;
    explained_ = explained_amplitude_ = true;
    const std::string flags = FlagsThatScale();
    // If flags extend the model to more positions, the scaling is intentional.
    if (!flags.empty() && !file_.factor &&
        RuntimeLength(runtime_) > config_->MaxPositions().value_or(0)) {
      return;
    }
    const std::string key = gguf_.Key("rope.scaling.factor");
    Add("readers.frequencies",
        {"llama.cpp",
         Say("gguf.scales", {flags.empty() ? key : flags + ": the factor",
                             factor, gguf_.ScalingType(), config_path_}),
         flags.empty() ? Say("gguf.scales-fix", {config_path_})
                       : absl::StrCat("leave out ", flags)},
        {key});
  }

  // Reports a type, factor or original length that differs from the
  // reference's.
  void CheckOtherScaling(const char* type) {
    std::vector<std::string> facts, keys;
    const auto tell = [&](const char* name, const Value& is,
                          const Value& wanted) {
      keys.push_back(gguf_.Key(name));
      facts.push_back(absl::StrCat(keys.back(), " is ", is.text, " instead of ",
                                   wanted.text));
    };
    if (gguf_.ScalingType() != type) {
      tell("rope.scaling.type", gguf_.ScalingType(), type);
    }
    const double factor = gguf_.factor.value_or(1);
    if (DiffersBy(factor, ReferenceFactor())) {
      tell("rope.scaling.factor",
           GivenOr("absent: ", gguf_.factor.has_value(), factor),
           ReferenceFactor());
    }
    explained_amplitude_ |= !facts.empty();
    const auto& original = gguf_.original_context_length;
    if (Yarn() != nullptr && gguf_.ScalingType() == "yarn" && original &&
        *original != Yarn()->original_max_position_embeddings) {
      tell("rope.scaling.original_context_length", *original,
           Yarn()->original_max_position_embeddings);
    }
    if (facts.empty()) return;
    const std::string flags = FlagsThatScale();
    Explain("readers.frequencies",
            {"llama.cpp",
             absl::StrCat(absl::StrJoin(facts, ", "), "; ", config_path_,
                          " has ", ReferenceText()),
             absl::StrCat(flags.empty()
                              ? "convert it again, or "
                              : absl::StrCat("instead of ", flags, " give "),
                          ScalingFlags())},
            keys);
  }

  void CheckOriginalLength() {
    const std::string type = gguf_.ScalingType();
    // The converter writes longrope's factors, but not the scaling type.
    const bool has_lists =
        !gguf_.factors_long.empty() || !gguf_.factors_short.empty();
    if (!(type == "yarn" || type == "longrope" || has_lists) ||
        gguf_.original_context_length) {
      return;
    }
    const std::int64_t original =
        Yarn() != nullptr ? Yarn()->original_max_position_embeddings
        : reference_      ? reference_->original_max_position_embeddings
                          : 0;
    if (gguf_.context_length == original) return;
    const std::string key = gguf_.Key("rope.scaling.original_context_length");
    const std::string taken =
        gguf_.context_length ? absl::StrCat(*gguf_.context_length) : "nothing";
    std::string wanted = absl::StrCat(original), given = wanted;
    if (original == 0) {
      wanted = "the original length, which is not known";
      given = gguf_.context_length
                  ? absl::StrCat(taken, " if the model was trained with that")
                  : "the original length";
    }
    // --yarn-orig-ctx affects only YaRN. For LongRoPE, only the file's key
    // decides between the short and the long factors.
    const std::string flag =
        type == "yarn" ? absl::StrCat("--yarn-orig-ctx ", given)
                       : absl::StrCat("--override-kv ", key, "=int:", given);
    Explain("gguf.original-length", {key, taken, wanted, flag, given}, {key});
    // longrope's amplitude does not depend on the original length.
    if (type == "yarn") explained_amplitude_ = true;
  }

  void CheckSections() {
    constexpr std::size_t kSections = 4;
    std::vector<double> ours = gguf_.sections, wanted;
    if (config_ != nullptr) {
      wanted = NumbersOf(config_->InDicts("mrope_section"));
    }
    const bool refused = (gguf_.pairing == GgufPairing::kSections ||
                          gguf_.pairing == GgufPairing::kInterleavedSections) &&
                         ours.size() != kSections;
    const std::string fault = refused
                                  ? ", and llama.cpp refuses all but 4 elements"
                                  : SectionsFault();
    std::string fact =
        absl::StrCat(ours.empty() ? "absent" : ListText(ours), fault);
    if (!wanted.empty()) {
      absl::StrAppend(&fact, ", and ", config_path_, " has mrope_section ",
                      ListText(wanted));
    } else if (fault.empty()) {
      return;
    }
    const bool known = !wanted.empty() || (refused && !ours.empty());
    if (wanted.empty()) wanted = ours;
    wanted.resize(kSections);
    ours.resize(kSections);
    if (ours == wanted && fault.empty()) return;
    const std::string key = gguf_.Key("rope.dimension_sections");
    Add("gguf.sections",
        {key, fact,
         known ? ListText(wanted) : "the model's mrope_section, and 0"},
        {key});
  }

  // Returns why the four sections are wrong; "" if they are right. Sections
  // must give every pair an axis.
  std::string SectionsFault() const {
    absl::StatusOr<ResolvedRope> rope =
        interpretation::ResolveGguf(gguf_, 1, false);
    if (!rope.ok()) return "";
    const absl::Status axes = interpretation::SetGgufAxes(gguf_, &*rope);
    if (axes.ok()) return "";
    const std::string key = gguf_.Key("rope.dimension_sections");
    return absl::StrCat(
        ", which ",
        absl::StripPrefix(axes.message(), absl::StrCat("key ", key, " ")));
  }

  void CheckSliding() {
    if (!sliding_) return;
    const double base = gguf_.SlidingBase();
    CheckNumber("gguf.swa", "rope.freq_base_swa", base,
                sliding_->spec.rope_theta.value_or(base), "float",
                GivenOr("absent: ", gguf_.freq_base_swa.has_value(), base));
    const auto width = static_cast<double>(
        gguf_.dimension_count_swa.value_or(gguf_.RotaryDim()));
    if (width == 0) return;
    CheckNumber(
        "gguf.swa", "rope.dimension_count_swa", width,
        sliding_->spec.rotary_dim, "int",
        GivenOr("absent: ", gguf_.dimension_count_swa.has_value(), width));
  }

  // Runs the check gguf.factor-tensors on rope_freqs and on longrope's two
  // lists.
  void CheckFactors() {
    bool right_length = true;
    for (const FactorList& list : kLists) {
      right_length &= HasRightLength(list.name, gguf_.*list.values);
    }
    if (!gguf_.rope_freqs.empty() && gguf_.factor.value_or(1) != 1 &&
        gguf_.ScalingType() != "none") {
      return BadFactors(Say("factors.twice",
                            {gguf_.Key("rope.scaling.factor"), *gguf_.factor}),
                        ", or --rope-scaling none");
    }
    if (gguf_.factors_long.empty() != gguf_.factors_short.empty()) {
      return BadFactors(Say("factors.one-list",
                            {gguf_.factors_long.empty() ? "long" : "short"}));
    }
    if (!reference_ || !right_length) return;
    if (ReferenceScaling<LongRopeScaling>() != nullptr) return CheckLists();
    // Llama 3's scaling by factor 1 changes nothing, so it needs no tensor.
    const bool llama3 = ReferenceScaling<Llama3Scaling>() != nullptr;
    const bool needs_factors =
        llama3 || ReferenceScaling<ProportionalScaling>() != nullptr;
    if (!gguf_.rope_freqs.empty()) {
      CheckFreqs(needs_factors);
    } else if (needs_factors && !(llama3 && ReferenceFactor() == 1)) {
      BadFactors(Say("factors.absent",
                     {"rope_freqs.weight is", config_path_, ReferenceText()}));
    }
  }

  void BadFactors(const std::string& fact, const std::string& more = "") {
    Explain("gguf.factor-tensors", {fact, more}, {"rope_freqs.weight"});
  }

  // True if the list is absent or has one value for each pair. Else reports the
  // wrong length.
  bool HasRightLength(const char* name, const std::vector<double>& list) {
    auto pairs = static_cast<std::size_t>(gguf_.RotaryDim() / 2);
    if (const std::size_t wanted = gguf_.FactorCount(); wanted != pairs) {
      pairs = wanted;
    } else if (reference_) {
      pairs = static_cast<std::size_t>(reference_->spec.rotary_dim / 2);
    }
    if (list.empty() || pairs == 0 || list.size() == pairs) return true;
    BadFactors(Say("factors.length", {name, list.size(), pairs}));
    return false;
  }

  void CheckLists() {
    const auto& lists = *ReferenceScaling<LongRopeScaling>();
    if (gguf_.factors_long.empty()) {
      return BadFactors(
          Say("factors.absent",
              {"rope_factors_long.weight and rope_factors_short.weight are",
               config_path_, "longrope"}));
    }
    const auto check = [&](const char* name, const std::vector<double>& ours,
                           const std::vector<double>& theirs) {
      for (std::size_t i = 0; i < std::min(ours.size(), theirs.size()); ++i) {
        if (!DiffersBy(ours[i], theirs[i], kFactors)) continue;
        return BadFactors(
            Say("factors.pair", {name, ours[i], i, config_path_, theirs[i]}));
      }
    };
    check("rope_factors_long.weight", gguf_.factors_long, lists.long_factor);
    check("rope_factors_short.weight", gguf_.factors_short, lists.short_factor);
  }

  // A value of rope_freqs is a quotient: the unscaled frequency of a pair
  // divided by the scaled frequency.
  void CheckFreqs(bool needs_factors) {
    const std::vector<double>& freqs = gguf_.rope_freqs;
    const auto n = static_cast<double>(freqs.size());
    if (!reference_->spec.rope_theta ||
        reference_->inv_freq.size() != freqs.size()) {
      return;
    }
    bool differs = false;
    for (std::size_t i = 0; i < freqs.size(); ++i) {
      const double scaled = reference_->inv_freq[i];
      const double w =
          std::pow(*reference_->spec.rope_theta, -static_cast<double>(i) / n);
      // A pair with frequency 0 has an infinite factor.
      differs |= scaled == 0 ? freqs[i] < 1e20
                             : DiffersBy(freqs[i], w / scaled, kFactors);
    }
    if (!differs) return;
    const double fits = *std::max_element(freqs.begin(), freqs.end());
    const double factor = ReferenceFactor();
    if (needs_factors && factor != 1 && DiffersBy(fits, factor, kFactors)) {
      return BadFactors(Say("factors.factor", {fits, config_path_, factor}));
    }
    BadFactors(Say("factors.other", {fits, config_path_, ReferenceText()}),
               Say("factors.other-fix", {config_path_}));
  }

  void CheckAmplitude() {
    if (explained_amplitude_) return;
    const auto rope = Resolve(*reference_);
    const double wanted = reference_->attention_factor;
    if (!rope || !DiffersBy(rope->attention_factor, wanted)) return;
    const auto& given = gguf_.attn_factor;
    const bool no_log = !gguf_.yarn_log_multiplier;
    // If the file has yarn_log_multiplier, the amplitude of deepseek2 is 1.
    const bool by_log = absl::StartsWith(gguf_.architecture, "deepseek") &&
                        !given && no_log && wanted == 1;
    const bool by_factor = !by_log && (given || no_log);
    const std::string factor_key = gguf_.Key("rope.scaling.attn_factor");
    const std::string log_key = gguf_.Key("rope.scaling.yarn_log_multiplier");
    const std::string& key = by_factor ? factor_key : log_key;
    const bool absent = by_log || (by_factor && !given);
    // For deepseek2 the key stores a tenth of mscale_all_dim.
    const json& all_dim = config_->InDicts("mscale_all_dim");
    const double number =
        by_log ? 0.1 * (all_dim.is_number() ? all_dim.get<double>() : 1)
               : given.value_or(1) * wanted / rope->attention_factor;
    Finding& finding =
        Add("gguf.amplitude",
            {rope->attention_factor, key + (absent ? " (absent)" : ""), wanted,
             config_path_,
             absl::StrCat(by_log ? log_key : factor_key,
                          "=float:", PlainNumber(number))},
            {key});
    finding.severity = SeverityOf(finding.readers[0].amplitude_ratio);
  }

  // Reports differing frequencies that no check above explains.
  void CheckRest() {
    if (explained_) return;
    const auto rope = Resolve(*converted_);
    if (!rope || rope->inv_freq.size() != converted_->inv_freq.size()) return;
    const interpretation::RopeDifference difference =
        interpretation::CompareRopes(*converted_, *rope);
    if (difference.max_relative_frequency_difference <= 4 * kTolerance) return;
    Add("readers.frequencies",
        {"llama.cpp",
         absl::StrCat("the file has ", gguf_.Describe(), ", and ", config_path_,
                      " ", DescribeRope(*reference_)),
         BetaFlags().empty() ? "convert it again from this configuration"
                             : absl::StrCat("start it with", BetaFlags())},
        {gguf_.Key("rope.scaling.factor")});
  }

  // Returns flags of llama.cpp for the betas of the reference's YaRN; "" if
  // llama.cpp takes these betas.
  std::string BetaFlags() const {
    if (Yarn() == nullptr || gguf_.ScalingType() != "yarn") return "";
    std::string flags;
    for (const auto& [flag, wanted, taken, otherwise] :
         {std::tuple("fast", Yarn()->beta_fast, gguf_.yarn_beta_fast, 32.0),
          std::tuple("slow", Yarn()->beta_slow, gguf_.yarn_beta_slow, 1.0)}) {
      const double beta = wanted.value_or(otherwise);
      if (beta == taken.value_or(otherwise)) continue;
      absl::StrAppend(&flags, " --yarn-beta-", flag, " ", PlainNumber(beta));
    }
    return flags;
  }

  const std::string& path_;
  const GgufRope& file_;
  GgufRope gguf_;  // after the command line's changes
  const std::vector<DoctorInput>& all_;
  const ConfigCase* const config_;  // may be null
  const std::string config_path_;
  const Runtime& runtime_;
  const Reach& reach_;
  // reference_: transformers' reading of the layers with full attention.
  // sliding_: transformers' reading of the layers with a sliding window.
  // converted_: llama.cpp's reading of the layers with full attention. All are
  // nullopt without a configuration that rotates.
  std::optional<ResolvedRope> reference_, sliding_, converted_;
  // True if a finding already says that the frequencies, or the amplitude,
  // differ.
  bool explained_ = false, explained_amplitude_ = false;
  std::vector<Finding>* const findings_;
};

}  // namespace

void CheckGguf(const DoctorInput& input, const std::vector<DoctorInput>& all,
               const ConfigCase* config, const Runtime& runtime,
               const Reach& reach, std::vector<Finding>* findings) {
  GgufChecks(input, all, config, runtime, reach, findings).Run();
}

}  // namespace posenc::core::doctor
