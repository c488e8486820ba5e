// gguf.factor-tensors: rope_freqs, and longrope's two lists.

#include <algorithm>
#include <cmath>

#include "core/doctor/gguf_case.h"

namespace posenc::core::doctor {
namespace {

void BadFactors(GgufCase* one, const std::string& fact,
                const std::string& more = "") {
  one->Explain("gguf.factor-tensors", {fact, more}, {"rope_freqs.weight"});
}

// True if the list is absent or has one value for each pair. Else reports the
// wrong length.
bool HasRightLength(GgufCase* one, const char* name,
                    const std::vector<double>& list) {
  auto pairs = static_cast<std::size_t>(one->gguf().RotaryDim() / 2);
  if (const std::size_t wanted = one->gguf().FactorCount(); wanted != pairs) {
    pairs = wanted;
  } else if (one->reference()) {
    pairs = static_cast<std::size_t>(one->reference()->spec.rotary_dim / 2);
  }
  if (list.empty() || pairs == 0 || list.size() == pairs) return true;
  BadFactors(one, Say("factors.length", {name, list.size(), pairs}));
  return false;
}

void CheckLists(GgufCase* one) {
  const auto& lists = *one->ReferenceScaling<LongRopeScaling>();
  if (one->gguf().factors_long.empty()) {
    return BadFactors(
        one, Say("factors.absent",
                 {"rope_factors_long.weight and rope_factors_short.weight are",
                  one->config_path(), "longrope"}));
  }
  const auto check = [&](const char* name, const std::vector<double>& ours,
                         const std::vector<double>& theirs) {
    for (std::size_t i = 0; i < std::min(ours.size(), theirs.size()); ++i) {
      if (!DiffersBy(ours[i], theirs[i], kFactorTolerance)) continue;
      return BadFactors(one,
                        Say("factors.pair",
                            {name, ours[i], i, one->config_path(), theirs[i]}));
    }
  };
  check("rope_factors_long.weight", one->gguf().factors_long,
        lists.long_factor);
  check("rope_factors_short.weight", one->gguf().factors_short,
        lists.short_factor);
}

// A value of rope_freqs is a quotient: the unscaled frequency of a pair
// divided by the scaled frequency.
void CheckFreqs(GgufCase* one, bool needs_factors) {
  const std::vector<double>& freqs = one->gguf().rope_freqs;
  const auto n = static_cast<double>(freqs.size());
  if (!one->reference()->spec.rope_theta ||
      one->reference()->inv_freq.size() != freqs.size()) {
    return;
  }
  bool differs = false;
  for (std::size_t i = 0; i < freqs.size(); ++i) {
    const double scaled = one->reference()->inv_freq[i];
    const double w = std::pow(*one->reference()->spec.rope_theta,
                              -static_cast<double>(i) / n);
    // A pair with frequency 0 has an infinite factor.
    differs |= scaled == 0 ? freqs[i] < 1e20
                           : DiffersBy(freqs[i], w / scaled, kFactorTolerance);
  }
  if (!differs) return;
  const double fits = *std::max_element(freqs.begin(), freqs.end());
  const double factor = one->ReferenceFactor();
  if (needs_factors && factor != 1 &&
      DiffersBy(fits, factor, kFactorTolerance)) {
    return BadFactors(
        one, Say("factors.factor", {fits, one->config_path(), factor}));
  }
  BadFactors(
      one,
      Say("factors.other", {fits, one->config_path(), one->ReferenceText()}),
      Say("factors.other-fix", {one->config_path()}));
}

}  // namespace

void CheckGgufFactors(GgufCase* one) {
  bool right_length = true;
  for (const FactorList& list : kFactorLists) {
    right_length &= HasRightLength(one, list.name, one->gguf().*list.values);
  }
  if (!one->gguf().rope_freqs.empty() && one->gguf().factor.value_or(1) != 1 &&
      one->gguf().ScalingType() != "none") {
    return BadFactors(
        one,
        Say("factors.twice",
            {one->gguf().Key("rope.scaling.factor"), *one->gguf().factor}),
        ", or --rope-scaling none");
  }
  if (one->gguf().factors_long.empty() != one->gguf().factors_short.empty()) {
    return BadFactors(
        one, Say("factors.one-list",
                 {one->gguf().factors_long.empty() ? "long" : "short"}));
  }
  if (!one->reference() || !right_length) return;
  if (one->ReferenceScaling<LongRopeScaling>() != nullptr) {
    return CheckLists(one);
  }
  // Llama 3's scaling by factor 1 changes nothing, so it needs no tensor.
  const bool llama3 = one->ReferenceScaling<Llama3Scaling>() != nullptr;
  const bool needs_factors =
      llama3 || one->ReferenceScaling<ProportionalScaling>() != nullptr;
  if (!one->gguf().rope_freqs.empty()) {
    CheckFreqs(one, needs_factors);
  } else if (needs_factors && !(llama3 && one->ReferenceFactor() == 1)) {
    BadFactors(
        one, Say("factors.absent", {"rope_freqs.weight is", one->config_path(),
                                    one->ReferenceText()}));
  }
}

}  // namespace posenc::core::doctor
