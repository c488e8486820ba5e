// gguf.*: the checks of a GGUF file after a command line has changed its keys.
// They compare the file with the configuration from which it was converted, and
// the file's keys with each other.

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

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
constexpr double kKeyTolerance = 1e-6;
// Relative tolerance of factors, which converters compute in float32.
constexpr double kFactorTolerance = 1e-5;

// Tensors of factors, by their names in the file.
struct FactorList {
  const char* name;
  std::vector<double> GgufRope::*values;
};
constexpr FactorList kFactorLists[] = {
    {"rope_freqs.weight", &GgufRope::rope_freqs},
    {"rope_factors_long.weight", &GgufRope::factors_long},
    {"rope_factors_short.weight", &GgufRope::factors_short},
};

// True if a and b differ by more than a relative tolerance.
bool DiffersBy(double a, double b, double tolerance = kKeyTolerance) {
  return RelativeDifference(a, b) > tolerance;
}

// Returns the number `taken` as text. If the file does not give the number, the
// text begins with `otherwise`.
std::string GivenOr(const char* otherwise, bool given, double taken) {
  return absl::StrCat(given ? "" : otherwise, PlainNumber(taken));
}

struct GgufChecks {
  const std::string& path;
  const std::vector<Input>& all;
  const ConfigCase* const config;  // null without a configuration
  const Runtime& runtime;
  std::vector<Finding>* const findings;
  // `file` has the file's keys. `gguf` has these keys after the command line
  // has changed them.
  const GgufRope& file;
  GgufRope gguf;

  // `reference` is transformers' reading of the layers with full attention, and
  // `sliding` transformers' reading of the layers with a sliding window.
  // `converted` is llama.cpp's reading of the layers with full attention. All
  // are nullopt without a configuration that rotates.
  std::optional<ResolvedRope> reference = {}, sliding = {}, converted = {};
  // `explained` is true if a finding already says that the frequencies differ,
  // and `explained_amplitude` if a finding already says that the amplitude
  // differs. Further checks then do not report the same difference again.
  bool explained = false, explained_amplitude = false;

  void Run() {
    ApplyRuntime(runtime, &gguf);
    CheckAlone();
    FindReference();
    CheckExtFactor();
    CheckSwitch();
    if (!gguf.rotates) return;  // the file's other keys have no effect
    CheckSections();
    if (reference) {
      CheckBase();
      CheckDimension();
      CheckScaling();
      CheckSliding();
    }
    CheckFactors();
    CheckOriginalLength();
    if (reference) {
      CheckAmplitude();
      CheckRest();
    }
  }

  void FindReference() {
    if (config == nullptr || config->reference() == nullptr) return;
    const auto& groups = config->groups();
    const auto resolve = [&](const char* reader, const LayerGroup& group) {
      auto rope = doctor::Resolve(config->root(), *FindReader(reader), group,
                                  config->reach());
      return rope.ok() ? std::optional(*std::move(rope)) : std::nullopt;
    };
    LayerGroup full, local;
    full.type = "full_attention";
    local.type = "sliding_attention";
    if (groups.size() > 1) {
      reference = resolve("hf", full);
      sliding = resolve("hf", local);
    }
    if (!reference || !sliding || reference->spec.nope || sliding->spec.nope) {
      sliding.reset();
      const auto& ropes = config->reference()->ropes;
      const auto turns = std::ranges::find_if(
          ropes, [](const auto& rope) { return !rope->spec.nope; });
      reference.reset();
      if (turns == ropes.end()) return;
      reference = **turns;
      full = groups[static_cast<std::size_t>(turns - ropes.begin())];
    }
    converted = resolve("llama_cpp", full);
    if (!converted) converted = reference;
  }

  // The reference's scaling; null if there is no reference, or if its scaling
  // has another type.
  template <typename Scaling>
  const Scaling* ReferenceScaling() const {
    return reference ? std::get_if<Scaling>(&reference->spec.scaling) : nullptr;
  }
  const YarnScaling* Yarn() const { return ReferenceScaling<YarnScaling>(); }
  // ReferenceFactor() and ReferenceText() need a reference. The text is such as
  // "yarn by 4 from 32768".
  double ReferenceFactor() const {
    return FactorOf(reference->spec).value_or(1);
  }
  std::string ReferenceText() const {
    const std::string text = interpretation::ScalingText(reference->spec);
    return text.substr(0, text.find(','));
  }

  // Resolves the file with the pairing and slice of `like`, a rope of the
  // configuration. Pairing and slice are not compared, because the conversion
  // permutes rows.
  std::optional<ResolvedRope> Resolve(const ResolvedRope& like) const {
    if (!gguf.rotates) {
      ResolvedRope none;
      none.spec.nope = true;
      none.head_dim = like.head_dim;
      return none;
    }
    auto rope =
        interpretation::ResolveGguf(gguf, config->reach().length, false);
    if (!rope.ok()) return std::nullopt;
    rope->spec.pairing = like.spec.pairing;
    rope->spec.slice = like.spec.slice;
    rope->head_dim = like.head_dim;
    return *std::move(rope);
  }

  // Compares the file with the reference.
  Verdict FileVerdict() const {
    Verdict verdict;
    if (const auto rope = Resolve(*reference)) {
      verdict = Compare(*reference, *rope, config->reach()).verdict;
    } else {
      verdict.first_distance = 1;
      verdict.kept_at_length = 0;
    }
    verdict.name = "llama.cpp";
    verdict.says = absl::StrCat("2026: ", gguf.Describe());
    return verdict;
  }

  // Adds a finding. In the texts of the row, $0 is the file's path, and
  // `values` are $1, $2, ...
  Finding& Add(absl::string_view id, Values values,
               std::vector<std::string> keys) {
    values.insert(values.begin(), path);
    std::vector<std::string> inputs = {path};
    if (config != nullptr) inputs.push_back(config->path());
    std::vector<Verdict> readers;
    if (reference) readers.push_back(FileVerdict());
    return AddFinding(id, values, std::move(inputs), std::move(keys), findings,
                      std::move(readers));
  }

  // Adds a finding about a key. `name` is the key without the architecture,
  // such as "rope.freq_base". In the texts of the row, $1 is the full key, and
  // `values` are $2, $3, ...
  Finding& AddKey(absl::string_view id, absl::string_view name, Values values) {
    const std::string key = gguf.Key(name);
    values.insert(values.begin(), key);
    return Add(id, std::move(values), {key});
  }

  // Returns the names of the file's tensors of factors.
  std::vector<std::string> Tensors() const {
    std::vector<std::string> names;
    for (const FactorList& list : kFactorLists) {
      if (!(file.*list.values).empty()) names.emplace_back(list.name);
    }
    return names;
  }

  // The base of the reference, raised by static NTK scaling. The base of a GGUF
  // also includes this scaling.
  double ReferenceBase(double otherwise) const {
    const double base = reference->spec.rope_theta.value_or(otherwise);
    const auto* const ntk = ReferenceScaling<NtkScaling>();
    const double d = reference->spec.rotary_dim;
    return ntk && d > 2 ? base * std::pow(ntk->factor, d / (d - 2)) : base;
  }

  // Reports faults that have nothing to do with the configuration.
  void CheckAlone() {
    if (gguf.pairing == GgufPairing::kUnknown) {
      Add("gguf.unknown-architecture", {gguf.architecture},
          {"general.architecture"});
    }
    for (const interpretation::MistypedKey& key : gguf.mistyped) {
      Add("gguf.key-type", {key.key, key.is, key.wanted}, {key.key});
    }
    std::vector<std::string> has = Tensors();
    if (const double factor = file.factor.value_or(1); factor != 1) {
      has.push_back(absl::StrCat("scaling.factor ", PlainNumber(factor)));
    }
    if (!has.empty() && gguf.architecture != "gpt-oss") {
      Add("gguf.other-loaders", {absl::StrJoin(has, " and ")},
          {gguf.Key("rope.freq_base")});
    }
  }

  void CheckExtFactor() {
    const double ext = gguf.yarn_ext_factor.value_or(0);
    if (!(ext > 0) || ext == 1) return;
    explained = true;
    AddKey("gguf.yarn-ext-factor", "rope.scaling.yarn_ext_factor", {ext});
  }

  // Reports a number in the file that differs from the configuration's number.
  // `is` describes the number that llama.cpp takes: if the key is absent, or a
  // flag replaces it, `is` says so. Returns null if the numbers agree.
  Finding* CheckNumber(absl::string_view id, const char* name, double taken,
                       double wanted, const char* type, const std::string& is) {
    if (!DiffersBy(taken, wanted)) return nullptr;
    return &AddKey(id, name, {is, config->path(), wanted, type});
  }

  // Returns the path of a checkpoint that has a saved table with this base,
  // else "".
  std::string TableWithBase(double base) const {
    for (const Input& input : all) {
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

  void CheckBase() {
    const double taken = gguf.Base();
    const double base = ReferenceBase(taken);
    const bool by_flag = runtime.Find("--rope-freq-base") != nullptr;
    Finding* const finding = CheckNumber(
        "gguf.freq-base", "rope.freq_base", taken, base, "float",
        absl::StrCat(GivenOr("absent: ", gguf.freq_base.has_value(), taken),
                     by_flag ? " by --rope-freq-base" : ""));
    if (finding == nullptr) return;
    explained = true;
    if (by_flag) {
      finding->fix =
          absl::StrCat("give --rope-freq-base ", PlainNumber(base),
                       DiffersBy(file.Base(), base) ? "" : ", or leave it out");
    } else if (const std::string table = TableWithBase(taken);
               gguf.freq_base && !table.empty()) {
      finding->fix = Say("gguf.table-has-base",
                         {taken, config->path(), table, finding->fix});
    }
  }

  void CheckDimension() {
    const auto width = static_cast<double>(gguf.RotaryDim());
    if (width == 0) return;
    Finding* const finding =
        CheckNumber("gguf.dimension-count", "rope.dimension_count", width,
                    reference->spec.rotary_dim, "int",
                    GivenOr("absent: the head's ",
                            gguf.dimension_count.has_value(), width));
    if (finding != nullptr) explained = true;
  }

  // Returns why the four sections are wrong; "" if they are right. Sections
  // must give every pair an axis.
  std::string SectionsFault() const {
    absl::StatusOr<ResolvedRope> rope =
        interpretation::ResolveGguf(gguf, 1, false);
    if (!rope.ok()) return "";
    const absl::Status axes = interpretation::SetGgufAxes(gguf, &*rope);
    if (axes.ok()) return "";
    const std::string key = gguf.Key("rope.dimension_sections");
    return absl::StrCat(
        ", which ",
        absl::StripPrefix(axes.message(), absl::StrCat("key ", key, " ")));
  }

  void CheckSections() {
    constexpr std::size_t kSections = 4;
    std::vector<double> ours = gguf.sections, wanted;
    if (config != nullptr) {
      wanted = NumbersOf(config->InDicts("mrope_section"));
    }
    const bool refused = (gguf.pairing == GgufPairing::kSections ||
                          gguf.pairing == GgufPairing::kInterleavedSections) &&
                         ours.size() != kSections;
    const std::string fault = refused
                                  ? ", and llama.cpp refuses all but 4 elements"
                                  : SectionsFault();
    std::string fact =
        absl::StrCat(ours.empty() ? "absent" : ListText(ours), fault);
    if (!wanted.empty()) {
      absl::StrAppend(&fact, ", and ", config->path(), " has mrope_section ",
                      ListText(wanted));
    } else if (fault.empty()) {
      return;
    }
    const bool known = !wanted.empty() || (refused && !ours.empty());
    if (wanted.empty()) wanted = ours;
    wanted.resize(kSections);
    ours.resize(kSections);
    if (ours == wanted && fault.empty()) return;
    AddKey(
        "gguf.sections", "rope.dimension_sections",
        {fact, known ? ListText(wanted) : "the model's mrope_section, and 0"});
  }

  void CheckSliding() {
    if (!sliding) return;
    const double base = gguf.SlidingBase();
    CheckNumber("gguf.swa", "rope.freq_base_swa", base,
                sliding->spec.rope_theta.value_or(base), "float",
                GivenOr("absent: ", gguf.freq_base_swa.has_value(), base));
    const auto width = static_cast<double>(
        gguf.dimension_count_swa.value_or(gguf.RotaryDim()));
    if (width == 0) return;
    CheckNumber(
        "gguf.swa", "rope.dimension_count_swa", width, sliding->spec.rotary_dim,
        "int",
        GivenOr("absent: ", gguf.dimension_count_swa.has_value(), width));
  }

  void CheckAmplitude() {
    if (explained_amplitude) return;
    const auto rope = Resolve(*reference);
    const double wanted = reference->attention_factor;
    if (!rope || !DiffersBy(rope->attention_factor, wanted)) return;
    const auto& given = gguf.attn_factor;
    const bool no_log = !gguf.yarn_log_multiplier;
    // The amplitude of deepseek2 is 1 if the file has yarn_log_multiplier, so
    // the fix is to add this key.
    const bool by_log = absl::StartsWith(gguf.architecture, "deepseek") &&
                        !given && no_log && wanted == 1;
    const bool by_factor = !by_log && (given || no_log);
    const std::string factor_key = gguf.Key("rope.scaling.attn_factor");
    const std::string log_key = gguf.Key("rope.scaling.yarn_log_multiplier");
    const std::string& key = by_factor ? factor_key : log_key;
    const bool absent = by_log || (by_factor && !given);
    // deepseek2's yarn_log_multiplier is a tenth of mscale_all_dim.
    const json& all_dim = config->InDicts("mscale_all_dim");
    const double number =
        by_log ? 0.1 * (all_dim.is_number() ? all_dim.get<double>() : 1)
               : given.value_or(1) * wanted / rope->attention_factor;
    Finding& finding =
        Add("gguf.amplitude",
            {rope->attention_factor, key + (absent ? " (absent)" : ""), wanted,
             config->path(),
             absl::StrCat(by_log ? log_key : factor_key,
                          "=float:", PlainNumber(number))},
            {key});
    finding.severity = SeverityOf(finding.readers[0].amplitude_ratio);
  }

  // Returns flags of llama.cpp for the betas of the reference's YaRN; "" if
  // llama.cpp takes these betas without flags.
  std::string BetaFlags() const {
    if (Yarn() == nullptr || gguf.ScalingType() != "yarn") return "";
    std::string flags;
    for (const auto& [flag, wanted, taken, otherwise] :
         {std::tuple("fast", Yarn()->beta_fast, gguf.yarn_beta_fast, 32.0),
          std::tuple("slow", Yarn()->beta_slow, gguf.yarn_beta_slow, 1.0)}) {
      const double beta = wanted.value_or(otherwise);
      if (beta == taken.value_or(otherwise)) continue;
      absl::StrAppend(&flags, " --yarn-beta-", flag, " ", PlainNumber(beta));
    }
    return flags;
  }

  // Reports differing frequencies that no check above explains.
  void CheckRest() {
    if (explained) return;
    const auto rope = Resolve(*converted);
    if (!rope || rope->inv_freq.size() != converted->inv_freq.size()) {
      return;
    }
    const interpretation::RopeDifference difference =
        interpretation::CompareRopes(*converted, *rope);
    if (difference.max_relative_frequency_difference <= 4 * kKeyTolerance)
      return;
    Add("readers.frequencies",
        {"llama.cpp",
         absl::StrCat("the file has ", gguf.Describe(), ", and ",
                      config->path(), " ", DescribeRope(*reference)),
         BetaFlags().empty() ? "convert it again from this configuration"
                             : absl::StrCat("start it with", BetaFlags())},
        {gguf.Key("rope.scaling.factor")});
  }

  void CheckSwitch() {
    const bool wanted = reference.has_value();
    if (!gguf.HasSwitch() || config == nullptr ||
        config->reference() == nullptr || wanted == gguf.rotates) {
      return;
    }
    explained = true;
    AddKey("gguf.rope-switch", "rope.scaling.finetuned",
           {gguf.rotates ? "true, or absent" : "false",
            gguf.rotates ? "rotates its layers" : "rotates no layer",
            config->path(), wanted ? "rotate" : "do not rotate",
            wanted ? "true" : "false"});
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
      if (const std::string* const value = runtime.Find(flag)) {
        given.push_back(absl::StrCat(flag, " ", *value));
      }
    }
    return absl::StrJoin(given, " ");
  }

  // Reports a scaling in the file or in flags, if the reference has no scaling.
  void CheckUnscaled() {
    const double factor = gguf.factor.value_or(1);
    if (gguf.ScalingType() == "none" || factor == 1 || !Tensors().empty()) {
      return;
    }
    explained = explained_amplitude = true;
    const std::string flags = FlagsThatScale();
    // No finding if flags extend the model to more positions, because the
    // scaling is then intentional.
    if (!flags.empty() && !file.factor &&
        RuntimeLength(runtime) > config->MaxPositions().value_or(0)) {
      return;
    }
    const std::string key = gguf.Key("rope.scaling.factor");
    Add("readers.frequencies",
        {"llama.cpp",
         Say("gguf.scales", {flags.empty() ? key : flags + ": the factor",
                             factor, gguf.ScalingType(), config->path()}),
         flags.empty() ? Say("gguf.scales-fix", {config->path()})
                       : absl::StrCat("leave out ", flags)},
        {key});
  }

  // Reports a type, factor or original length that differs from the
  // reference's.
  void CheckOtherScaling(const char* type) {
    std::vector<std::string> facts, keys;
    const auto tell = [&](const char* name, const Value& is,
                          const Value& wanted) {
      keys.push_back(gguf.Key(name));
      facts.push_back(absl::StrCat(keys.back(), " is ", is.text, " instead of ",
                                   wanted.text));
    };
    if (gguf.ScalingType() != type) {
      tell("rope.scaling.type", gguf.ScalingType(), type);
    }
    const double factor = gguf.factor.value_or(1);
    if (DiffersBy(factor, ReferenceFactor())) {
      tell("rope.scaling.factor",
           GivenOr("absent: ", gguf.factor.has_value(), factor),
           ReferenceFactor());
    }
    if (!facts.empty()) explained_amplitude = true;
    const auto& original = gguf.original_context_length;
    if (Yarn() != nullptr && gguf.ScalingType() == "yarn" && original &&
        *original != Yarn()->original_max_position_embeddings) {
      tell("rope.scaling.original_context_length", *original,
           Yarn()->original_max_position_embeddings);
    }
    if (facts.empty()) return;
    const std::string flags = FlagsThatScale();
    explained = true;
    Add("readers.frequencies",
        {"llama.cpp",
         absl::StrCat(absl::StrJoin(facts, ", "), "; ", config->path(), " has ",
                      ReferenceText()),
         absl::StrCat(flags.empty()
                          ? "convert it again, or "
                          : absl::StrCat("instead of ", flags, " give "),
                      ScalingFlags())},
        keys);
  }

  void BadFactors(const std::string& fact, const std::string& more = "") {
    explained = true;
    Add("gguf.factor-tensors", {fact, more}, {"rope_freqs.weight"});
  }

  // True if the list is absent or has one value for each pair. Else reports the
  // wrong length.
  bool HasRightLength(const char* name, const std::vector<double>& list) {
    auto pairs = static_cast<std::size_t>(gguf.RotaryDim() / 2);
    if (const std::size_t wanted = gguf.FactorCount(); wanted != pairs) {
      pairs = wanted;
    } else if (reference) {
      pairs = static_cast<std::size_t>(reference->spec.rotary_dim / 2);
    }
    if (list.empty() || pairs == 0 || list.size() == pairs) return true;
    BadFactors(Say("factors.length", {name, list.size(), pairs}));
    return false;
  }

  void CheckLists() {
    const auto& lists = *ReferenceScaling<LongRopeScaling>();
    if (gguf.factors_long.empty()) {
      return BadFactors(
          Say("factors.absent",
              {"rope_factors_long.weight and rope_factors_short.weight are",
               config->path(), "longrope"}));
    }
    const auto check = [&](const char* name, const std::vector<double>& ours,
                           const std::vector<double>& theirs) {
      for (std::size_t i = 0; i < std::min(ours.size(), theirs.size()); ++i) {
        if (!DiffersBy(ours[i], theirs[i], kFactorTolerance)) continue;
        return BadFactors(
            Say("factors.pair", {name, ours[i], i, config->path(), theirs[i]}));
      }
    };
    check("rope_factors_long.weight", gguf.factors_long, lists.long_factor);
    check("rope_factors_short.weight", gguf.factors_short, lists.short_factor);
  }

  // A value of rope_freqs is a quotient: the unscaled frequency of a pair
  // divided by the scaled frequency.
  void CheckFreqs(bool needs_factors) {
    const std::vector<double>& freqs = gguf.rope_freqs;
    const auto n = static_cast<double>(freqs.size());
    if (!reference->spec.rope_theta ||
        reference->inv_freq.size() != freqs.size()) {
      return;
    }
    bool differs = false;
    for (std::size_t i = 0; i < freqs.size(); ++i) {
      const double scaled = reference->inv_freq[i];
      const double w =
          std::pow(*reference->spec.rope_theta, -static_cast<double>(i) / n);
      // The factor of a pair with frequency 0 is infinite. Factors of 1e20 or
      // more count as infinite.
      differs |= scaled == 0
                     ? freqs[i] < 1e20
                     : DiffersBy(freqs[i], w / scaled, kFactorTolerance);
    }
    if (!differs) return;
    const double fits = *std::ranges::max_element(freqs);
    const double factor = ReferenceFactor();
    if (needs_factors && factor != 1 &&
        DiffersBy(fits, factor, kFactorTolerance)) {
      return BadFactors(Say("factors.factor", {fits, config->path(), factor}));
    }
    BadFactors(Say("factors.other", {fits, config->path(), ReferenceText()}),
               Say("factors.other-fix", {config->path()}));
  }

  void CheckScaling() {
    const bool yarn = Yarn() != nullptr;
    if (!yarn && ReferenceScaling<LinearScaling>() == nullptr &&
        IsScaled(*reference)) {
      return;  // a GGUF has this scaling as tensors of factors, not as keys
    }
    if (ReferenceFactor() == 1) return CheckUnscaled();
    const char* const type = yarn ? "yarn" : "linear";
    const bool none = gguf.scaling_type == "none";
    const bool by_flag = none && file.ScalingType() != "none";
    if (none || (!gguf.scaling_type && !gguf.factor && Tensors().empty())) {
      Finding& finding =
          AddKey("gguf.scaling-missing", "rope.scaling.type",
                 {none ? "none" : "absent", by_flag ? " by --rope-scaling" : "",
                  config->path(), ReferenceText(), ScalingFlags()});
      if (by_flag) finding.fix = "leave out --rope-scaling none";
    } else if (!gguf.scaling_type && gguf.factor && yarn) {
      AddKey("gguf.scaling-type-missing", "rope.scaling.type",
             {*gguf.factor, config->path(), ReferenceText(), type,
              gguf.original_context_length ? "" : OriginalFlag()});
    } else {
      return CheckOtherScaling(type);
    }
    explained = explained_amplitude = true;
  }

  void CheckOriginalLength() {
    const std::string type = gguf.ScalingType();
    // The converter writes longrope's factors, but not the scaling type.
    const bool has_lists =
        !gguf.factors_long.empty() || !gguf.factors_short.empty();
    if (!(type == "yarn" || type == "longrope" || has_lists) ||
        gguf.original_context_length) {
      return;
    }
    const std::int64_t original =
        reference ? reference->original_max_position_embeddings : 0;
    if (gguf.context_length == original) return;
    constexpr char kOriginal[] = "rope.scaling.original_context_length";
    const std::string taken =
        gguf.context_length ? absl::StrCat(*gguf.context_length) : "nothing";
    std::string wanted = absl::StrCat(original), given = wanted;
    if (original == 0) {
      wanted = "the original length, which is not known";
      given = gguf.context_length
                  ? absl::StrCat(taken, " if the model was trained with that")
                  : "the original length";
    }
    // --yarn-orig-ctx affects only YaRN. For LongRoPE, only the file's key
    // decides between the short and the long factors.
    const std::string flag =
        type == "yarn" ? absl::StrCat("--yarn-orig-ctx ", given)
                       : absl::StrCat("--override-kv ", gguf.Key(kOriginal),
                                      "=int:", given);
    explained = true;
    AddKey("gguf.original-length", kOriginal, {taken, wanted, flag, given});
    // longrope's amplitude does not depend on the original length.
    if (type == "yarn") explained_amplitude = true;
  }

  void CheckFactors() {
    bool right_length = true;
    for (const FactorList& list : kFactorLists) {
      right_length &= HasRightLength(list.name, gguf.*list.values);
    }
    if (!gguf.rope_freqs.empty() && gguf.factor.value_or(1) != 1 &&
        gguf.ScalingType() != "none") {
      return BadFactors(
          Say("factors.twice", {gguf.Key("rope.scaling.factor"), *gguf.factor}),
          ", or --rope-scaling none");
    }
    if (gguf.factors_long.empty() != gguf.factors_short.empty()) {
      return BadFactors(Say("factors.one-list",
                            {gguf.factors_long.empty() ? "long" : "short"}));
    }
    if (!reference || !right_length) return;
    if (ReferenceScaling<LongRopeScaling>() != nullptr) {
      return CheckLists();
    }
    // Llama 3's scaling by factor 1 changes nothing, so it needs no tensor.
    const bool llama3 = ReferenceScaling<Llama3Scaling>() != nullptr;
    const bool needs_factors =
        llama3 || ReferenceScaling<ProportionalScaling>() != nullptr;
    if (!gguf.rope_freqs.empty()) {
      CheckFreqs(needs_factors);
    } else if (needs_factors && !(llama3 && ReferenceFactor() == 1)) {
      BadFactors(Say("factors.absent", {"rope_freqs.weight is", config->path(),
                                        ReferenceText()}));
    }
  }
};

bool AreAlike(const std::vector<double>& a, const std::vector<double>& b,
              double tolerance) {
  const std::size_t n = std::min(a.size(), b.size());
  for (std::size_t i = 0; i < n; ++i) {
    if (!(std::abs(a[i] - b[i]) <= tolerance)) return false;
  }
  return n > 0;
}

}  // namespace

void CheckGguf(const Input& input, const std::vector<Input>& all,
               const ConfigCase* config, const Runtime& runtime,
               std::vector<Finding>* findings) {
  GgufChecks{input.path, all,         config,     runtime,
             findings,   *input.gguf, *input.gguf}
      .Run();
}

void CheckPairing(const DoctorInput& gguf, const DoctorInput& checkpoint,
                  const ConfigCase& config, std::vector<Finding>* findings) {
  if (!gguf.gguf || !gguf.query || !checkpoint.query ||
      config.reference() == nullptr) {
    return;
  }
  const ResolvedRope& rope = config.rope();
  const auto& ours = gguf.query->rows;
  const auto& theirs = checkpoint.query->rows;
  const auto d = static_cast<std::size_t>(rope.spec.rotary_dim);
  // Partial and trailing slices are permuted in another way, so they are not
  // checked.
  if (rope.spec.nope || rope.spec.rotary_dim != rope.head_dim || d < 4 ||
      ours.size() < d || theirs.size() < d) {
    return;
  }
  double most = 0;
  for (const auto& row : theirs) {
    for (const double value : row) most = std::max(most, std::abs(value));
  }
  // A conversion to another 16-bit format keeps 8 significant bits.
  const double tolerance = 0x1p-7 * most;
  bool as_it_was = true, permuted = true;
  for (std::size_t i = 0; i < d / 2; ++i) {
    as_it_was &= AreAlike(ours[i], theirs[i], tolerance) &&
                 AreAlike(ours[i + d / 2], theirs[i + d / 2], tolerance);
    permuted &= AreAlike(ours[2 * i], theirs[i], tolerance) &&
                AreAlike(ours[2 * i + 1], theirs[i + d / 2], tolerance);
  }
  if (as_it_was == permuted) return;  // different weights, or rows too similar
  const GgufPairing pairing = gguf.gguf->pairing;
  const bool right = permuted ? pairing != GgufPairing::kHalfSplit
                              : pairing != GgufPairing::kInterleaved ||
                                    rope.spec.pairing != Pairing::kHalfSplit;
  if (right) return;
  AddFinding(
      "gguf.pairing",
      {gguf.path, Say(permuted ? "pairing.permuted" : "pairing.not-permuted",
                      {gguf.query->name, gguf.gguf->architecture})},
      {gguf.path, checkpoint.path, config.path()},
      {gguf.query->name, checkpoint.query->name}, findings);
}

}  // namespace posenc::core::doctor
