// The checks of a GGUF's scaling: gguf.scaling-missing,
// gguf.scaling-type-missing, gguf.original-length, gguf.factor-tensors, and
// readers.frequencies for scalings that differ.

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/doctor/gguf_case.h"

namespace posenc::core::doctor {
namespace {

std::string OriginalFlag(const GgufCase& one) {
  return absl::StrCat(" --yarn-orig-ctx ",
                      one.Yarn()->original_max_position_embeddings);
}

// Returns flags of llama.cpp that express the reference's scaling.
std::string ScalingFlags(const GgufCase& one) {
  const bool yarn = one.Yarn() != nullptr;
  return absl::StrCat("--rope-scaling ", yarn ? "yarn" : "linear",
                      " --rope-scale ", PlainNumber(one.ReferenceFactor()),
                      yarn ? OriginalFlag(one) : "");
}

// Returns the flags of the command line that scale, or "" if no flag scales.
std::string FlagsThatScale(const GgufCase& one) {
  std::vector<std::string> given;
  for (const char* flag : {"--rope-scaling", "--rope-scale",
                           "--rope-freq-scale", "--yarn-orig-ctx"}) {
    if (const std::string* const value = one.runtime.Find(flag)) {
      given.push_back(absl::StrCat(flag, " ", *value));
    }
  }
  return absl::StrJoin(given, " ");
}

// Reports a scaling in the file or in flags, if the reference has no scaling.
void CheckUnscaled(GgufCase* one) {
  const double factor = one->gguf.factor.value_or(1);
  if (one->gguf.ScalingType() == "none" || factor == 1 ||
      !one->Tensors().empty()) {
    return;
  }
  one->explained = one->explained_amplitude = true;
  const std::string flags = FlagsThatScale(*one);
  // Adds no finding if flags extend the model to more positions, because the
  // scaling is then intentional.
  if (!flags.empty() && !one->file.factor &&
      RuntimeLength(one->runtime) > one->config->MaxPositions().value_or(0)) {
    return;
  }
  const std::string key = one->gguf.Key("rope.scaling.factor");
  one->Add(
      "readers.frequencies",
      {"llama.cpp",
       Say("gguf.scales", {flags.empty() ? key : flags + ": the factor", factor,
                           one->gguf.ScalingType(), one->config->path()}),
       flags.empty() ? Say("gguf.scales-fix", {one->config->path()})
                     : absl::StrCat("leave out ", flags)},
      {key});
}

// Reports a type, factor or original length that differs from the
// reference's.
void CheckOtherScaling(GgufCase* one, const char* type) {
  std::vector<std::string> facts, keys;
  const auto tell = [&](const char* name, const Value& is,
                        const Value& wanted) {
    keys.push_back(one->gguf.Key(name));
    facts.push_back(absl::StrCat(keys.back(), " is ", is.text, " instead of ",
                                 wanted.text));
  };
  if (one->gguf.ScalingType() != type) {
    tell("rope.scaling.type", one->gguf.ScalingType(), type);
  }
  const double factor = one->gguf.factor.value_or(1);
  if (DiffersBy(factor, one->ReferenceFactor())) {
    tell("rope.scaling.factor",
         GivenOr("absent: ", one->gguf.factor.has_value(), factor),
         one->ReferenceFactor());
  }
  if (!facts.empty()) one->explained_amplitude = true;
  const auto& original = one->gguf.original_context_length;
  if (one->Yarn() != nullptr && one->gguf.ScalingType() == "yarn" && original &&
      *original != one->Yarn()->original_max_position_embeddings) {
    tell("rope.scaling.original_context_length", *original,
         one->Yarn()->original_max_position_embeddings);
  }
  if (facts.empty()) return;
  const std::string flags = FlagsThatScale(*one);
  one->explained = true;
  one->Add("readers.frequencies",
           {"llama.cpp",
            absl::StrCat(absl::StrJoin(facts, ", "), "; ", one->config->path(),
                         " has ", one->ReferenceText()),
            absl::StrCat(flags.empty()
                             ? "convert it again, or "
                             : absl::StrCat("instead of ", flags, " give "),
                         ScalingFlags(*one))},
           keys);
}

void BadFactors(GgufCase* one, const std::string& fact,
                const std::string& more = "") {
  one->explained = true;
  one->Add("gguf.factor-tensors", {fact, more}, {"rope_freqs.weight"});
}

// True if the list is absent or has one value for each pair. Reports any other
// length.
bool HasRightLength(GgufCase* one, const char* name,
                    const std::vector<double>& list) {
  auto pairs = static_cast<std::size_t>(one->gguf.RotaryDim() / 2);
  if (const std::size_t wanted = one->gguf.FactorCount(); wanted != pairs) {
    pairs = wanted;
  } else if (one->reference) {
    pairs = static_cast<std::size_t>(one->reference->spec.rotary_dim / 2);
  }
  if (list.empty() || pairs == 0 || list.size() == pairs) return true;
  BadFactors(one, Say("factors.length", {name, list.size(), pairs}));
  return false;
}

void CheckLists(GgufCase* one) {
  const auto& lists = *one->ReferenceScaling<LongRopeScaling>();
  if (one->gguf.factors_long.empty()) {
    return BadFactors(
        one, Say("factors.absent",
                 {"rope_factors_long.weight and rope_factors_short.weight are",
                  one->config->path(), "longrope"}));
  }
  const auto check = [&](const char* name, const std::vector<double>& ours,
                         const std::vector<double>& theirs) {
    for (std::size_t i = 0; i < std::min(ours.size(), theirs.size()); ++i) {
      if (!DiffersBy(ours[i], theirs[i], kFactorTolerance)) continue;
      return BadFactors(
          one, Say("factors.pair",
                   {name, ours[i], i, one->config->path(), theirs[i]}));
    }
  };
  check("rope_factors_long.weight", one->gguf.factors_long, lists.long_factor);
  check("rope_factors_short.weight", one->gguf.factors_short,
        lists.short_factor);
}

// A value of rope_freqs is a quotient: the unscaled frequency of a pair
// divided by the scaled frequency.
void CheckFreqs(GgufCase* one, bool needs_factors) {
  const std::vector<double>& freqs = one->gguf.rope_freqs;
  const auto n = static_cast<double>(freqs.size());
  if (!one->reference->spec.rope_theta ||
      one->reference->inv_freq.size() != freqs.size()) {
    return;
  }
  bool differs = false;
  for (std::size_t i = 0; i < freqs.size(); ++i) {
    const double scaled = one->reference->inv_freq[i];
    const double w =
        std::pow(*one->reference->spec.rope_theta, -static_cast<double>(i) / n);
    // The factor of a pair with frequency 0 is infinite. Factors of 1e20 or
    // more count as infinite.
    differs |= scaled == 0 ? freqs[i] < 1e20
                           : DiffersBy(freqs[i], w / scaled, kFactorTolerance);
  }
  if (!differs) return;
  const double fits = *std::ranges::max_element(freqs);
  const double factor = one->ReferenceFactor();
  if (needs_factors && factor != 1 &&
      DiffersBy(fits, factor, kFactorTolerance)) {
    return BadFactors(
        one, Say("factors.factor", {fits, one->config->path(), factor}));
  }
  BadFactors(
      one,
      Say("factors.other", {fits, one->config->path(), one->ReferenceText()}),
      Say("factors.other-fix", {one->config->path()}));
}

}  // namespace

void CheckGgufScaling(GgufCase* one) {
  const bool yarn = one->Yarn() != nullptr;
  if (!yarn && one->ReferenceScaling<LinearScaling>() == nullptr &&
      IsScaled(*one->reference)) {
    return;  // a GGUF has this scaling as tensors of factors, not as keys
  }
  if (one->ReferenceFactor() == 1) return CheckUnscaled(one);
  const char* const type = yarn ? "yarn" : "linear";
  const bool none = one->gguf.scaling_type == "none";
  const bool by_flag = none && one->file.ScalingType() != "none";
  if (none || (!one->gguf.scaling_type && !one->gguf.factor &&
               one->Tensors().empty())) {
    Finding& finding = one->AddKey(
        "gguf.scaling-missing", "rope.scaling.type",
        {none ? "none" : "absent", by_flag ? " by --rope-scaling" : "",
         one->config->path(), one->ReferenceText(), ScalingFlags(*one)});
    if (by_flag) finding.fix = "leave out --rope-scaling none";
  } else if (!one->gguf.scaling_type && one->gguf.factor && yarn) {
    one->AddKey(
        "gguf.scaling-type-missing", "rope.scaling.type",
        {*one->gguf.factor, one->config->path(), one->ReferenceText(), type,
         one->gguf.original_context_length ? "" : OriginalFlag(*one)});
  } else {
    return CheckOtherScaling(one, type);
  }
  one->explained = one->explained_amplitude = true;
}

void CheckGgufOriginalLength(GgufCase* one) {
  const std::string type = one->gguf.ScalingType();
  // The converter writes longrope's factors, but not the scaling type.
  const bool has_lists =
      !one->gguf.factors_long.empty() || !one->gguf.factors_short.empty();
  if (!(type == "yarn" || type == "longrope" || has_lists) ||
      one->gguf.original_context_length) {
    return;
  }
  const std::int64_t original =
      one->reference ? one->reference->original_max_position_embeddings : 0;
  if (one->gguf.context_length == original) return;
  constexpr char kOriginal[] = "rope.scaling.original_context_length";
  const std::string taken = one->gguf.context_length
                                ? absl::StrCat(*one->gguf.context_length)
                                : "nothing";
  std::string wanted = absl::StrCat(original), given = wanted;
  if (original == 0) {
    wanted = "the original length, which is not known";
    given = one->gguf.context_length
                ? absl::StrCat(taken, " if the model was trained with that")
                : "the original length";
  }
  // --yarn-orig-ctx affects only YaRN. For LongRoPE, only the file's key
  // decides between the short and the long factors.
  const std::string flag =
      type == "yarn" ? absl::StrCat("--yarn-orig-ctx ", given)
                     : absl::StrCat("--override-kv ", one->gguf.Key(kOriginal),
                                    "=int:", given);
  one->explained = true;
  one->AddKey("gguf.original-length", kOriginal, {taken, wanted, flag, given});
  // longrope's amplitude does not depend on the original length.
  if (type == "yarn") one->explained_amplitude = true;
}

void CheckGgufFactors(GgufCase* one) {
  bool right_length = true;
  for (const FactorList& list : kFactorLists) {
    right_length &= HasRightLength(one, list.name, one->gguf.*list.values);
  }
  if (!one->gguf.rope_freqs.empty() && one->gguf.factor.value_or(1) != 1 &&
      one->gguf.ScalingType() != "none") {
    return BadFactors(
        one,
        Say("factors.twice",
            {one->gguf.Key("rope.scaling.factor"), *one->gguf.factor}),
        ", or --rope-scaling none");
  }
  if (one->gguf.factors_long.empty() != one->gguf.factors_short.empty()) {
    return BadFactors(one,
                      Say("factors.one-list",
                          {one->gguf.factors_long.empty() ? "long" : "short"}));
  }
  if (!one->reference || !right_length) return;
  if (one->ReferenceScaling<LongRopeScaling>() != nullptr) {
    return CheckLists(one);
  }
  // Llama 3's scaling by factor 1 changes nothing, so it needs no tensor.
  const bool llama3 = one->ReferenceScaling<Llama3Scaling>() != nullptr;
  const bool needs_factors =
      llama3 || one->ReferenceScaling<ProportionalScaling>() != nullptr;
  if (!one->gguf.rope_freqs.empty()) {
    CheckFreqs(one, needs_factors);
  } else if (needs_factors && !(llama3 && one->ReferenceFactor() == 1)) {
    BadFactors(
        one, Say("factors.absent", {"rope_freqs.weight is", one->config->path(),
                                    one->ReferenceText()}));
  }
}

}  // namespace posenc::core::doctor
