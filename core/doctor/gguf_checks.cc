// gguf.*: compares a GGUF with the configuration that it was converted from,
// and its keys with each other.

#include <algorithm>
#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "core/doctor/gguf_case.h"
#include "core/error.h"
#include "core/interpretation/compare.h"
#include "core/text.h"

namespace posenc::core::doctor {
namespace {

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
  GgufChecks(GgufCase* of, const std::vector<DoctorInput>& all,
             const Runtime& runtime)
      : of_(*of), all_(all), runtime_(runtime) {}

  void Run() {
    CheckAlone();
    CheckSections();
    if (of_.reference) {
      CheckBase();
      CheckDimension();
      CheckScaling();
      CheckSliding();
    }
    CheckFactorTensors(&of_);
    CheckOriginalLength();
    if (of_.reference) {
      CheckAmplitude();
      CheckRest();
    }
  }

 private:
  void CheckAlone() {
    if (of_.gguf.pairing == interpretation::GgufPairing::kUnknown) {
      of_.Add("gguf.unknown-architecture", {of_.gguf.architecture},
              {"general.architecture"})
          .readers.clear();
    }
    if (of_.gguf.yarn_ext_factor) {
      const double ext = *of_.gguf.yarn_ext_factor;
      if (ext > 0 && ext != 1) {
        const std::string key = of_.gguf.Key("rope.scaling.yarn_ext_factor");
        of_.Add("gguf.yarn-ext-factor", {key, PlainNumber(ext)}, {key});
        of_.explained = true;
      }
    }
    std::vector<std::string> has;
    if (of_.file.factor && *of_.file.factor != 1) {
      has.push_back(
          absl::StrCat("scaling.factor ", PlainNumber(*of_.file.factor)));
    }
    if (!of_.file.rope_freqs.empty()) has.emplace_back("rope_freqs.weight");
    if (!of_.file.factors_long.empty()) {
      has.emplace_back("rope_factors_long.weight");
    }
    if (!has.empty() && of_.gguf.architecture != "gpt-oss") {
      Finding& finding =
          of_.Add("gguf.other-loaders", {absl::StrJoin(has, " and ")},
                  {of_.gguf.Key("rope.freq_base")});
      finding.readers.clear();
    }
  }

  void CheckBase() {
    if (!of_.reference->spec.rope_theta) return;
    const double base = *of_.reference->spec.rope_theta;
    if (!DiffersBy(of_.gguf.Base(), base, kGgufTolerance)) return;
    const std::string key = of_.gguf.Key("rope.freq_base");
    const bool by_flag = runtime_.Find("--rope-freq-base") != nullptr;
    const std::string is =
        of_.gguf.freq_base ? absl::StrCat(PlainNumber(*of_.gguf.freq_base),
                                          by_flag ? " by --rope-freq-base" : "")
                           : "absent";
    Finding& finding = of_.Add(
        "gguf.freq-base",
        {key, is, PlainNumber(of_.gguf.Base()), PlainNumber(base)}, {key});
    of_.explained = true;
    if (by_flag) {
      finding.fix =
          absl::StrCat("give --rope-freq-base ", PlainNumber(base),
                       DiffersBy(of_.file.Base(), base, kGgufTolerance)
                           ? ""
                           : ", or leave it out");
    } else if (const std::string table = TableWithBase(of_.gguf.Base());
               of_.gguf.freq_base && !table.empty()) {
      finding.fix = absl::StrCat(
          "set \"rope_theta\": ", PlainNumber(of_.gguf.Base()), " in ",
          of_.config->path(), ": ", table, " has it, too; or ", finding.fix);
    }
  }

  // Returns the path of a checkpoint with a saved table of that base, else "".
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
    const std::int64_t width = of_.gguf.RotaryDim();
    if (width == of_.reference->spec.rotary_dim || width == 0) return;
    const std::string key = of_.gguf.Key("rope.dimension_count");
    of_.Add(
        "gguf.dimension-count",
        {key,
         of_.gguf.dimension_count ? absl::StrCat(width)
                                  : absl::StrCat("absent: the head's ", width),
         of_.config->path(), absl::StrCat(of_.reference->spec.rotary_dim)},
        {key});
    of_.explained = true;
  }

  // Returns the reference's scaling as llama.cpp's flags.
  std::string ScalingFlags() const {
    std::string flags =
        absl::StrCat("--rope-scaling ", of_.IsYarn() ? "yarn" : "linear",
                     " --rope-scale ", PlainNumber(of_.ReferenceFactor()));
    if (of_.IsYarn()) absl::StrAppend(&flags, OriginalFlag());
    return flags;
  }

  std::string OriginalFlag() const {
    return absl::StrCat(" --yarn-orig-ctx ",
                        std::get<YarnScaling>(of_.reference->spec.scaling)
                            .original_max_position_embeddings);
  }

  // Returns the command line's flags that scale; "" without any.
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
    const bool is_scaled = of_.IsLinear() || of_.IsYarn();
    if (!is_scaled || of_.ReferenceFactor() == 1) {
      if (of_.reference->spec.scaling.index() == 0 || is_scaled)
        CheckUnscaled();
      return;
    }
    const std::string key = of_.gguf.Key("rope.scaling.type");
    const std::string type = of_.IsYarn() ? "yarn" : "linear";
    const bool none = of_.gguf.scaling_type && *of_.gguf.scaling_type == "none";
    if (none ||
        (!of_.gguf.scaling_type && !of_.gguf.factor && !of_.HasTensors())) {
      Finding& finding = of_.Add(
          "gguf.scaling-missing",
          {key, of_.config->path(), of_.ReferenceText(), ScalingFlags()},
          {key});
      if (none) {
        const bool by_flag = of_.file.ScalingType() != "none";
        finding.message = OneLine(
            absl::StrCat(of_.path, ": ", key, " is none",
                         by_flag ? " by --rope-scaling" : "", ", ",
                         of_.config->path(), " has ", of_.ReferenceText()));
        if (by_flag) finding.fix = "leave out --rope-scaling none";
      }
      of_.explained = of_.explained_amplitude = true;
    } else if (!of_.gguf.scaling_type && of_.gguf.factor && !of_.IsLinear()) {
      of_.Add(
          "gguf.scaling-type-missing",
          {key, PlainNumber(*of_.gguf.factor), of_.config->path(),
           of_.ReferenceText(), type,
           of_.IsYarn() && !of_.gguf.original_context_length ? OriginalFlag()
                                                             : ""},
          {key});
      of_.explained = of_.explained_amplitude = true;
    } else {
      CheckOtherScaling(type);
    }
  }

  // Finds a file, or flags, that scale although the reference does not.
  void CheckUnscaled() {
    const double factor = of_.gguf.factor.value_or(1);
    if (of_.gguf.ScalingType() == "none" || factor == 1 || of_.HasTensors())
      return;
    const std::string flags = FlagsThatScale();
    // Flags that serve more positions than the model has are intentional.
    if (!flags.empty() && !of_.file.factor &&
        RuntimeLength(runtime_) > of_.config->MaxPositions().value_or(0)) {
      of_.explained = of_.explained_amplitude = true;
      return;
    }
    Finding& finding = of_.Add(
        "readers.frequencies",
        {"llama.cpp",
         absl::StrCat(flags.empty() ? of_.gguf.Key("rope.scaling.factor")
                                    : absl::StrCat(flags, ": the factor"),
                      " is ", PlainNumber(factor), " (", of_.gguf.ScalingType(),
                      "), and ", of_.config->path(), " has no scaling"),
         flags.empty()
             ? absl::StrCat(
                   "--rope-scaling none, or convert it anew; if the model "
                   "was trained so, add the scaling to ",
                   of_.config->path())
             : absl::StrCat("leave out ", flags)},
        {of_.gguf.Key("rope.scaling.factor")});
    JudgeBySize(&finding);
    of_.explained = of_.explained_amplitude = true;
  }

  // Finds a type, factor or original length that differs from the reference's.
  void CheckOtherScaling(const std::string& type) {
    std::vector<std::string> facts, keys;
    const auto tell = [&](const char* name, const std::string& is,
                          const std::string& wanted) {
      keys.push_back(of_.gguf.Key(name));
      facts.push_back(absl::StrCat(keys.back(), " is ", is, " for ", wanted));
    };
    const double factor = of_.gguf.factor.value_or(1);
    if (of_.gguf.ScalingType() != type) {
      tell("rope.scaling.type", of_.gguf.ScalingType(), type);
    }
    if (DiffersBy(factor, of_.ReferenceFactor(), kGgufTolerance)) {
      tell("rope.scaling.factor",
           of_.gguf.factor ? PlainNumber(factor) : "absent: 1",
           PlainNumber(of_.ReferenceFactor()));
    }
    const bool other_amplitude = !facts.empty();
    if (const auto* yarn =
            std::get_if<YarnScaling>(&of_.reference->spec.scaling);
        yarn != nullptr && of_.gguf.ScalingType() == "yarn" &&
        of_.gguf.original_context_length &&
        *of_.gguf.original_context_length !=
            yarn->original_max_position_embeddings) {
      tell("rope.scaling.original_context_length",
           absl::StrCat(*of_.gguf.original_context_length),
           absl::StrCat(yarn->original_max_position_embeddings));
    }
    if (facts.empty()) return;
    Finding& finding = of_.Add(
        "readers.frequencies",
        {"llama.cpp",
         absl::StrCat(absl::StrJoin(facts, ", "), "; ", of_.config->path(),
                      " has ", of_.ReferenceText()),
         absl::StrCat(
             FlagsThatScale().empty()
                 ? "convert it anew, or "
                 : absl::StrCat("instead of ", FlagsThatScale(), " give "),
             ScalingFlags())},
        keys);
    JudgeBySize(&finding);
    of_.explained = true;
    of_.explained_amplitude |= other_amplitude;
  }

  void CheckOriginalLength() {
    const std::string type = of_.gguf.ScalingType();
    // The converter writes longrope's factors without a type.
    const bool has_lists =
        !of_.gguf.factors_long.empty() || !of_.gguf.factors_short.empty();
    if (!(type == "yarn" || type == "longrope" || has_lists) ||
        of_.gguf.original_context_length) {
      return;
    }
    const std::string key =
        of_.gguf.Key("rope.scaling.original_context_length");
    const std::string taken = of_.gguf.context_length
                                  ? absl::StrCat(*of_.gguf.context_length)
                                  : "nothing";
    std::int64_t original = 0;
    if (of_.reference) {
      original = of_.reference->original_max_position_embeddings;
      if (const auto* yarn =
              std::get_if<YarnScaling>(&of_.reference->spec.scaling)) {
        original = yarn->original_max_position_embeddings;
      }
    }
    std::string wanted = absl::StrCat(original), given = wanted;
    if (original == 0) {
      wanted = "the original length, which nothing tells";
      given = of_.gguf.context_length
                  ? absl::StrCat(taken, " if the model was trained with that")
                  : "the original length";
    }
    if (of_.gguf.context_length && *of_.gguf.context_length == original) return;
    // The flag is for YaRN alone: between two lists the file's key chooses.
    const std::string flag =
        type == "yarn" ? absl::StrCat("--yarn-orig-ctx ", given)
                       : absl::StrCat("--override-kv ", key, "=int:", given);
    Finding& finding = of_.Add("gguf.original-length",
                               {key, taken, wanted, flag, given}, {key});
    if (!finding.readers.empty()) JudgeBySize(&finding);
    of_.explained = true;
    // longrope's amplitude does not depend on that length.
    if (type == "yarn") of_.explained_amplitude = true;
  }

  // Returns the configuration's mrope_section.
  std::vector<double> ConfigSections() const {
    if (of_.config == nullptr) return {};
    for (const NamedDict& named : of_.config->Dicts()) {
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
    constexpr std::size_t kSections = 4;
    std::vector<double> ours = of_.gguf.sections;
    std::vector<double> wanted = ConfigSections();
    const bool has_axes =
        of_.gguf.pairing == interpretation::GgufPairing::kSections ||
        of_.gguf.pairing == interpretation::GgufPairing::kInterleavedSections;
    const bool refused = has_axes && ours.size() != kSections;
    const std::string fault = refused ? "" : SectionsFault();
    if (wanted.empty() && !refused && fault.empty()) return;
    std::string fact = ours.empty() ? "absent" : NumbersText(ours);
    if (refused) {
      absl::StrAppend(&fact, ", and llama.cpp refuses all but 4 elements");
    }
    absl::StrAppend(&fact, fault);
    if (!wanted.empty()) {
      absl::StrAppend(&fact, ", and ", of_.config->path(),
                      " has mrope_section ", NumbersText(wanted));
    }
    const bool known = !wanted.empty() || (refused && !ours.empty());
    if (wanted.empty()) wanted = ours;
    wanted.resize(kSections);
    ours.resize(kSections);
    if (ours == wanted && !refused && fault.empty()) return;
    const std::string key = of_.gguf.Key("rope.dimension_sections");
    of_.Add("gguf.sections",
            {key, fact,
             known ? NumbersText(wanted) : "the model's mrope_section, and 0"},
            {key});
  }

  // Says why four sections are wrong: they must give every pair an axis.
  std::string SectionsFault() const {
    absl::StatusOr<ResolvedRope> rope =
        interpretation::ResolveGguf(of_.gguf, 1, false);
    if (!rope.ok()) return "";
    const absl::Status axes = interpretation::SetGgufAxes(of_.gguf, &*rope);
    if (axes.ok()) return "";
    absl::string_view fact = axes.message();
    absl::ConsumePrefix(
        &fact,
        absl::StrCat("key ", of_.gguf.Key("rope.dimension_sections"), " "));
    return absl::StrCat(", which ", fact);
  }

  void CheckSliding() {
    if (!of_.sliding) return;
    const auto tell = [&](const char* name, const std::string& is,
                          const std::string& wanted, const char* type) {
      const std::string key = of_.gguf.Key(name);
      of_.Add("gguf.swa", {key, is, of_.config->path(), wanted, type}, {key});
    };
    // llama.cpp's code sets Gemma 3's local base.
    const double otherwise =
        of_.gguf.architecture == "gemma3" || of_.gguf.architecture == "gemma3n"
            ? 10000
            : of_.gguf.Base();
    const double base = of_.gguf.freq_base_swa.value_or(otherwise);
    if (of_.sliding->spec.rope_theta &&
        DiffersBy(base, *of_.sliding->spec.rope_theta, kGgufTolerance)) {
      tell("rope.freq_base_swa",
           of_.gguf.freq_base_swa ? PlainNumber(base)
                                  : absl::StrCat("absent: ", PlainNumber(base)),
           absl::StrCat("", PlainNumber(*of_.sliding->spec.rope_theta)),
           "float");
    }
    const std::int64_t width =
        of_.gguf.dimension_count_swa.value_or(of_.gguf.RotaryDim());
    if (width != 0 && width != of_.sliding->spec.rotary_dim) {
      tell("rope.dimension_count_swa",
           of_.gguf.dimension_count_swa ? absl::StrCat(width)
                                        : absl::StrCat("absent: ", width),
           absl::StrCat(of_.sliding->spec.rotary_dim), "int");
    }
  }

  // Returns a tenth of mscale_all_dim, which deepseek2 stores.
  double LogMultiplier() const {
    for (const NamedDict& named : of_.config->Dicts()) {
      const auto own = of_.config->Number(*named.dict, "mscale_all_dim");
      if (own) return 0.1 * *own;
    }
    return 0.1;
  }

  void CheckAmplitude() {
    if (of_.explained_amplitude) return;
    const auto rope = of_.Resolve(*of_.reference);
    if (!rope || !DiffersBy(rope->attention_factor,
                            of_.reference->attention_factor, kGgufTolerance)) {
      return;
    }
    // deepseek2 has no amplitude if the file has its multiplier.
    const bool by_log = absl::StartsWith(of_.gguf.architecture, "deepseek") &&
                        !of_.gguf.attn_factor &&
                        !of_.gguf.yarn_log_multiplier &&
                        of_.reference->attention_factor == 1;
    const bool multiplier = !by_log && (of_.gguf.attn_factor.has_value() ||
                                        !of_.gguf.yarn_log_multiplier);
    const std::string key =
        of_.gguf.Key(multiplier ? "rope.scaling.attn_factor"
                                : "rope.scaling.yarn_log_multiplier");
    const bool absent = by_log || (multiplier && !of_.gguf.attn_factor);
    const std::string attn_factor = absl::StrCat(
        of_.gguf.Key("rope.scaling.attn_factor"), "=float:",
        PlainNumber(of_.gguf.attn_factor.value_or(1) *
                    of_.reference->attention_factor / rope->attention_factor));
    Finding& finding = of_.Add(
        "gguf.amplitude",
        {PlainNumber(rope->attention_factor),
         absent ? absl::StrCat(key, " (absent)") : key,
         PlainNumber(of_.reference->attention_factor), of_.config->path(),
         by_log ? absl::StrCat(key, "=float:", PlainNumber(LogMultiplier()))
                : attn_factor},
        {key});
    Verdict amplitude = finding.readers[0];
    amplitude.first_distance = -1;
    amplitude.least_kept = 1;
    finding.severity = SeverityOf(amplitude);
  }

  // Finds differing frequencies that no check above explains.
  void CheckRest() {
    if (of_.explained) return;
    const auto rope = of_.Resolve(*of_.converted);
    if (!rope || rope->inv_freq.size() != of_.converted->inv_freq.size()) {
      return;
    }
    const interpretation::RopeDifference difference =
        interpretation::CompareRopes(*of_.converted, *rope);
    if (difference.max_relative_frequency_difference <= 4 * kGgufTolerance) {
      return;
    }
    Finding& finding = of_.Add(
        "readers.frequencies",
        {"llama.cpp",
         absl::StrCat("the file has ", of_.gguf.Describe(), ", and ",
                      of_.config->path(), " ", DescribeRope(*of_.reference)),
         "convert it anew from this configuration"},
        {of_.gguf.Key("rope.scaling.factor")});
    JudgeBySize(&finding);
  }

  GgufCase& of_;
  const std::vector<DoctorInput>& all_;
  const Runtime& runtime_;
};

}  // namespace

void CheckGguf(const DoctorInput& input, const std::vector<DoctorInput>& all,
               const ConfigCase* config, const Runtime& runtime,
               const Reach& reach, std::vector<Finding>* findings) {
  GgufCase of(input, config, runtime, reach, findings);
  GgufChecks(&of, all, runtime).Run();
}

}  // namespace posenc::core::doctor
