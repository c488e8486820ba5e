// gguf.factor-tensors: factors that a GGUF has as tensors.

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "core/doctor/gguf_case.h"

namespace posenc::core::doctor {
namespace {

// Relative tolerance of factors, which converters compute in float32.
constexpr double kFactors = 1e-5;

class FactorChecks {
 public:
  explicit FactorChecks(GgufCase* of) : of_(*of) {}

  void Run() {
    bool right_length = CheckLength("rope_freqs.weight", of_.gguf.rope_freqs);
    right_length &=
        CheckLength("rope_factors_long.weight", of_.gguf.factors_long);
    right_length &=
        CheckLength("rope_factors_short.weight", of_.gguf.factors_short);
    if (!of_.gguf.rope_freqs.empty() && of_.gguf.factor &&
        *of_.gguf.factor != 1 && of_.gguf.ScalingType() != "none") {
      BadTensor(absl::StrCat("rope_freqs.weight stands beside ",
                             of_.gguf.Key("rope.scaling.factor"), " ",
                             PlainNumber(*of_.gguf.factor), ": both apply"),
                ", or --rope-scaling none");
      return;
    }
    if (of_.gguf.factors_long.empty() != of_.gguf.factors_short.empty()) {
      BadTensor(absl::StrCat(of_.gguf.factors_long.empty()
                                 ? "rope_factors_long.weight"
                                 : "rope_factors_short.weight",
                             " is absent beside the other list"));
      return;
    }
    if (!of_.reference || !right_length) return;
    if (of_.NeedsFreqs() && of_.gguf.rope_freqs.empty()) {
      // Factor 1 scales nothing.
      if (of_.ReferenceFactor() == 1 &&
          std::holds_alternative<Llama3Scaling>(of_.reference->spec.scaling)) {
        return;
      }
      return BadTensor(absl::StrCat("rope_freqs.weight is absent, ",
                                    of_.config->path(), " has ",
                                    of_.ReferenceText()));
    }
    if (of_.IsLongRope()) {
      CheckLists();
    } else if (!of_.gguf.rope_freqs.empty()) {
      CheckFreqs();
    }
  }

 private:
  void BadTensor(const std::string& fact, const std::string& more = "") {
    of_.Add("gguf.factor-tensors", {fact, more}, {"rope_freqs.weight"});
    of_.explained = true;
  }

  // True if the list is absent or has one value for each pair.
  bool CheckLength(const char* name, const std::vector<double>& list) {
    const auto pairs = static_cast<std::size_t>(
        of_.reference ? of_.reference->spec.rotary_dim / 2
                      : of_.gguf.RotaryDim() / 2);
    if (list.empty() || pairs == 0 || list.size() == pairs) return true;
    BadTensor(absl::StrCat(name, " has ", list.size(), " values for ", pairs,
                           " pairs"));
    return false;
  }

  void CheckLists() {
    const auto& lists = std::get<LongRopeScaling>(of_.reference->spec.scaling);
    if (of_.gguf.factors_long.empty()) {
      return BadTensor(
          absl::StrCat("rope_factors_long.weight and "
                       "rope_factors_short.weight are absent, ",
                       of_.config->path(), " has longrope"));
    }
    const auto differs = [](const std::vector<double>& a,
                            const std::vector<double>& b) {
      for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
        if (DiffersBy(a[i], b[i], kFactors)) return static_cast<int>(i);
      }
      return -1;
    };
    const auto tell = [&](const char* name, const std::vector<double>& ours,
                          const std::vector<double>& theirs) {
      const int i = differs(ours, theirs);
      if (i < 0) return;
      BadTensor(absl::StrCat(name, " has ", PlainNumber(ours[i]), " for pair ",
                             i, ", ", of_.config->path(), " ",
                             PlainNumber(theirs[i])));
    };
    tell("rope_factors_long.weight", of_.gguf.factors_long, lists.long_factor);
    tell("rope_factors_short.weight", of_.gguf.factors_short,
         lists.short_factor);
  }

  // rope_freqs are geometric frequencies divided by scaled frequencies.
  void CheckFreqs() {
    if (!of_.reference->spec.rope_theta) return;
    const auto n = of_.gguf.rope_freqs.size();
    if (of_.reference->inv_freq.size() != n) return;
    double most = 0;
    for (std::size_t i = 0; i < n; ++i) {
      const double w =
          std::pow(*of_.reference->spec.rope_theta,
                   -static_cast<double>(i) / static_cast<double>(n));
      const double scaled = of_.reference->inv_freq[i];
      if (scaled == 0) {  // the factor of a pair that stands still is infinite
        if (of_.gguf.rope_freqs[i] < 1e20) most = 1;
      } else if (DiffersBy(of_.gguf.rope_freqs[i], w / scaled, kFactors)) {
        most = 1;
      }
    }
    if (most == 0) return;
    const double fits = *std::max_element(of_.gguf.rope_freqs.begin(),
                                          of_.gguf.rope_freqs.end());
    if (of_.NeedsFreqs() && DiffersBy(fits, of_.ReferenceFactor(), kFactors) &&
        of_.ReferenceFactor() != 1) {
      return BadTensor(absl::StrCat(
          "rope_freqs.weight fits factor ", PlainNumber(fits), ", ",
          of_.config->path(), " says ", PlainNumber(of_.ReferenceFactor())));
    }
    BadTensor(absl::StrCat("rope_freqs.weight has factors up to ",
                           PlainNumber(fits), ", and ", of_.config->path(),
                           " has ", of_.ReferenceText()),
              absl::StrCat("; if the model was trained so, add the scaling to ",
                           of_.config->path()));
  }

  GgufCase& of_;
};

}  // namespace

void CheckFactorTensors(GgufCase* of) { FactorChecks(of).Run(); }

}  // namespace posenc::core::doctor
