// gguf.*: the checks of a GGUF file after a command line has changed its keys.
// The checks compare the file with the configuration from which it was
// converted, and the file's keys with each other.

#include <algorithm>
#include <cmath>
#include <tuple>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "core/doctor/gguf_case.h"
#include "core/interpretation/compare.h"

namespace posenc::core::doctor {
namespace {

using interpretation::GgufPairing;
using interpretation::GgufRope;

// Returns the base of the reference, raised by static NTK scaling. The base of
// a GGUF also includes this scaling.
double ReferenceBase(const GgufCase& one, double otherwise) {
  const double base = one.reference->spec.rope_theta.value_or(otherwise);
  const auto* const ntk = one.ReferenceScaling<NtkScaling>();
  const double d = one.reference->spec.rotary_dim;
  return ntk && d > 2 ? base * std::pow(ntk->factor, d / (d - 2)) : base;
}

// Reports faults that have nothing to do with the configuration.
void CheckAlone(GgufCase* one) {
  if (one->gguf.pairing == GgufPairing::kUnknown) {
    one->Add("gguf.unknown-architecture", {one->gguf.architecture},
             {"general.architecture"});
  }
  for (const interpretation::MistypedKey& key : one->gguf.mistyped) {
    one->Add("gguf.key-type", {key.key, key.is, key.wanted}, {key.key});
  }
  std::vector<std::string> has = one->Tensors();
  if (const double factor = one->file.factor.value_or(1); factor != 1) {
    has.push_back(absl::StrCat("scaling.factor ", PlainNumber(factor)));
  }
  if (!has.empty() && one->gguf.architecture != "gpt-oss") {
    one->Add("gguf.other-loaders", {absl::StrJoin(has, " and ")},
             {one->gguf.Key("rope.freq_base")});
  }
}

void CheckExtFactor(GgufCase* one) {
  const double ext = one->gguf.yarn_ext_factor.value_or(0);
  if (!(ext > 0) || ext == 1) return;
  one->explained = true;
  one->AddKey("gguf.yarn-ext-factor", "rope.scaling.yarn_ext_factor", {ext});
}

// Reports a number in the file that differs from the configuration's number.
// `is` is the text of the number that llama.cpp takes. The text also says if
// the key is absent, or if a flag replaces the number. Returns null if the
// numbers agree.
Finding* CheckNumber(GgufCase* one, absl::string_view id, const char* name,
                     double taken, double wanted, const char* type,
                     const std::string& is) {
  if (!DiffersBy(taken, wanted)) return nullptr;
  return &one->AddKey(id, name, {is, one->config->path(), wanted, type});
}

// Returns the path of a checkpoint that has a saved table with this base,
// else "".
std::string TableWithBase(const GgufCase& one, double base) {
  for (const Input& input : one.all) {
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

void CheckBase(GgufCase* one) {
  const double taken = one->gguf.Base();
  const double base = ReferenceBase(*one, taken);
  const bool by_flag = one->runtime.Find("--rope-freq-base") != nullptr;
  Finding* const finding = CheckNumber(
      one, "gguf.freq-base", "rope.freq_base", taken, base, "float",
      absl::StrCat(GivenOr("absent: ", one->gguf.freq_base.has_value(), taken),
                   by_flag ? " by --rope-freq-base" : ""));
  if (finding == nullptr) return;
  one->explained = true;
  if (by_flag) {
    finding->fix = absl::StrCat(
        "give --rope-freq-base ", PlainNumber(base),
        DiffersBy(one->file.Base(), base) ? "" : ", or leave it out");
  } else if (const std::string table = TableWithBase(*one, taken);
             one->gguf.freq_base && !table.empty()) {
    finding->fix = Say("gguf.table-has-base",
                       {taken, one->config->path(), table, finding->fix});
  }
}

void CheckDimension(GgufCase* one) {
  const auto width = static_cast<double>(one->gguf.RotaryDim());
  if (width == 0) return;
  Finding* const finding =
      CheckNumber(one, "gguf.dimension-count", "rope.dimension_count", width,
                  one->reference->spec.rotary_dim, "int",
                  GivenOr("absent: the head's ",
                          one->gguf.dimension_count.has_value(), width));
  if (finding != nullptr) one->explained = true;
}

// Returns why the four sections are wrong, or "" if they are right. Sections
// must give every pair an axis.
std::string SectionsFault(const GgufCase& one) {
  absl::StatusOr<ResolvedRope> rope =
      interpretation::ResolveGguf(one.gguf, 1, false);
  if (!rope.ok()) return "";
  const absl::Status axes = interpretation::SetGgufAxes(one.gguf, &*rope);
  if (axes.ok()) return "";
  const std::string key = one.gguf.Key("rope.dimension_sections");
  return absl::StrCat(
      ", which ",
      absl::StripPrefix(axes.message(), absl::StrCat("key ", key, " ")));
}

void CheckSections(GgufCase* one) {
  constexpr std::size_t kSections = 4;
  std::vector<double> ours = one->gguf.sections, wanted;
  if (one->config != nullptr) {
    wanted = NumbersOf(one->config->InDicts("mrope_section"));
  }
  const bool refused =
      (one->gguf.pairing == GgufPairing::kSections ||
       one->gguf.pairing == GgufPairing::kInterleavedSections) &&
      ours.size() != kSections;
  const std::string fault = refused
                                ? ", and llama.cpp refuses all but 4 elements"
                                : SectionsFault(*one);
  std::string fact =
      absl::StrCat(ours.empty() ? "absent" : ListText(ours), fault);
  if (!wanted.empty()) {
    absl::StrAppend(&fact, ", and ", one->config->path(), " has mrope_section ",
                    ListText(wanted));
  } else if (fault.empty()) {
    return;
  }
  const bool known = !wanted.empty() || (refused && !ours.empty());
  if (wanted.empty()) wanted = ours;
  wanted.resize(kSections);
  ours.resize(kSections);
  if (ours == wanted && fault.empty()) return;
  one->AddKey(
      "gguf.sections", "rope.dimension_sections",
      {fact, known ? ListText(wanted) : "the model's mrope_section, and 0"});
}

void CheckSliding(GgufCase* one) {
  if (!one->sliding) return;
  const double base = one->gguf.SlidingBase();
  CheckNumber(one, "gguf.swa", "rope.freq_base_swa", base,
              one->sliding->spec.rope_theta.value_or(base), "float",
              GivenOr("absent: ", one->gguf.freq_base_swa.has_value(), base));
  const auto width = static_cast<double>(
      one->gguf.dimension_count_swa.value_or(one->gguf.RotaryDim()));
  if (width == 0) return;
  CheckNumber(
      one, "gguf.swa", "rope.dimension_count_swa", width,
      one->sliding->spec.rotary_dim, "int",
      GivenOr("absent: ", one->gguf.dimension_count_swa.has_value(), width));
}

void CheckAmplitude(GgufCase* one) {
  if (one->explained_amplitude) return;
  const auto rope = one->Resolve(*one->reference);
  const double wanted = one->reference->attention_factor;
  if (!rope || !DiffersBy(rope->attention_factor, wanted)) return;
  const auto& given = one->gguf.attn_factor;
  const bool no_log = !one->gguf.yarn_log_multiplier;
  // The amplitude of deepseek2 is 1 if the file has yarn_log_multiplier, so the
  // fix is to add this key.
  const bool by_log = absl::StartsWith(one->gguf.architecture, "deepseek") &&
                      !given && no_log && wanted == 1;
  const bool by_factor = !by_log && (given || no_log);
  const std::string factor_key = one->gguf.Key("rope.scaling.attn_factor");
  const std::string log_key = one->gguf.Key("rope.scaling.yarn_log_multiplier");
  const std::string& key = by_factor ? factor_key : log_key;
  const bool absent = by_log || (by_factor && !given);
  // deepseek2's yarn_log_multiplier is a tenth of mscale_all_dim.
  const json& all_dim = one->config->InDicts("mscale_all_dim");
  const double number =
      by_log ? 0.1 * (all_dim.is_number() ? all_dim.get<double>() : 1)
             : given.value_or(1) * wanted / rope->attention_factor;
  Finding& finding =
      one->Add("gguf.amplitude",
               {rope->attention_factor, key + (absent ? " (absent)" : ""),
                wanted, one->config->path(),
                absl::StrCat(by_log ? log_key : factor_key,
                             "=float:", PlainNumber(number))},
               {key});
  finding.severity = SeverityOf(finding.readers[0].amplitude_ratio);
}

// Returns flags of llama.cpp for the betas of the reference's YaRN, or "" if
// llama.cpp takes these betas without flags.
std::string BetaFlags(const GgufCase& one) {
  if (one.Yarn() == nullptr || one.gguf.ScalingType() != "yarn") return "";
  std::string flags;
  for (const auto& [flag, wanted, taken, otherwise] :
       {std::tuple("fast", one.Yarn()->beta_fast, one.gguf.yarn_beta_fast,
                   32.0),
        std::tuple("slow", one.Yarn()->beta_slow, one.gguf.yarn_beta_slow,
                   1.0)}) {
    const double beta = wanted.value_or(otherwise);
    if (beta == taken.value_or(otherwise)) continue;
    absl::StrAppend(&flags, " --yarn-beta-", flag, " ", PlainNumber(beta));
  }
  return flags;
}

// Reports differing frequencies that no check above explains.
void CheckRest(GgufCase* one) {
  if (one->explained) return;
  const auto rope = one->Resolve(*one->converted);
  if (!rope || rope->inv_freq.size() != one->converted->inv_freq.size()) {
    return;
  }
  const interpretation::RopeDifference difference =
      interpretation::CompareRopes(*one->converted, *rope);
  if (difference.max_relative_frequency_difference <= 4 * kKeyTolerance) return;
  one->Add(
      "readers.frequencies",
      {"llama.cpp",
       absl::StrCat("the file has ", one->gguf.Describe(), ", and ",
                    one->config->path(), " ", DescribeRope(*one->reference)),
       BetaFlags(*one).empty()
           ? "convert it again from this configuration"
           : absl::StrCat("start it with", BetaFlags(*one))},
      {one->gguf.Key("rope.scaling.factor")});
}

void CheckSwitch(GgufCase* one) {
  const GgufRope& gguf = one->gguf;
  const bool wanted = one->reference.has_value();
  if (!gguf.HasSwitch() || one->config == nullptr ||
      one->config->reference() == nullptr || wanted == gguf.rotates) {
    return;
  }
  one->explained = true;
  one->AddKey("gguf.rope-switch", "rope.scaling.finetuned",
              {gguf.rotates ? "true, or absent" : "false",
               gguf.rotates ? "rotates its layers" : "rotates no layer",
               one->config->path(), wanted ? "rotate" : "do not rotate",
               wanted ? "true" : "false"});
}

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
  GgufCase one = {input.path, all,         config,     runtime,
                  findings,   *input.gguf, *input.gguf};
  ApplyRuntime(runtime, &one.gguf);
  CheckAlone(&one);  // without a reference, so its findings have no readers
  one.FindReference();
  CheckExtFactor(&one);
  CheckSwitch(&one);
  if (!one.gguf.rotates) return;  // the file's other keys have no effect
  CheckSections(&one);
  if (one.reference) {
    CheckBase(&one);
    CheckDimension(&one);
    CheckGgufScaling(&one);
    CheckSliding(&one);
  }
  CheckGgufFactors(&one);
  CheckGgufOriginalLength(&one);
  if (one.reference) {
    CheckAmplitude(&one);
    CheckRest(&one);
  }
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
  // Partial and trailing slices are permuted in another way than whole heads,
  // so they are not checked.
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
