// The data of all checks gguf.*: a GGUF file, and the configuration from which
// the file was converted.

#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/doctor/input_checks.h"

namespace posenc::core::doctor {

// Relative tolerance for values of keys. The converter computes these values,
// and stores them in float32.
constexpr double kKeyTolerance = 1e-6;
// Relative tolerance for elements of kFactorLists. Converters compute these
// elements in float32.
constexpr double kFactorTolerance = 1e-5;

// Tensors of factors, by their names in the file.
struct FactorList {
  const char* name;
  std::vector<double> interpretation::GgufRope::*values;
};
constexpr FactorList kFactorLists[] = {
    {"rope_freqs.weight", &interpretation::GgufRope::rope_freqs},
    {"rope_factors_long.weight", &interpretation::GgufRope::factors_long},
    {"rope_factors_short.weight", &interpretation::GgufRope::factors_short},
};

// A case does not own its inputs. The inputs must outlive the case.
struct GgufCase {
  // Sets `reference`, `sliding` and `converted`.
  void FindReference();

  // The reference's scaling; null if there is no reference, or if its scaling
  // has another type.
  template <typename Scaling>
  const Scaling* ReferenceScaling() const {
    return reference ? std::get_if<Scaling>(&reference->spec.scaling) : nullptr;
  }
  const YarnScaling* Yarn() const { return ReferenceScaling<YarnScaling>(); }
  // Both functions need a reference. ReferenceText() returns a text such as
  // "yarn by 4 from 32768".
  double ReferenceFactor() const;
  std::string ReferenceText() const;

  // Resolves the file with the pairing and slice of `like`, a rope of the
  // configuration. Pairing and slice are not compared, because the conversion
  // permutes rows.
  std::optional<ResolvedRope> Resolve(const ResolvedRope& like) const;

  Verdict FileVerdict() const;

  // Returns the names of the file's tensors of factors.
  std::vector<std::string> Tensors() const;

  // Adds a finding. In the texts of rows/checks.json, $0 is the file's path,
  // and `values` are $1, $2, ... If there is a reference, the finding has the
  // verdict FileVerdict().
  Finding& Add(absl::string_view id, Values values,
               std::vector<std::string> keys);
  // Adds a finding about a key. `name` is the key without the architecture,
  // such as "rope.freq_base". In the texts of rows/checks.json, $1 is the full
  // key, and `values` are $2, $3, ...
  Finding& AddKey(absl::string_view id, absl::string_view name, Values values);

  const std::string& path;
  const std::vector<Input>& all;
  const ConfigCase* const config;  // null without a configuration
  const Runtime& runtime;
  std::vector<Finding>* const findings;
  // `file` has the file's keys. `gguf` has these keys after the command line
  // has changed them.
  const interpretation::GgufRope& file;
  interpretation::GgufRope gguf;

  // `reference` is transformers' reading of the layers with full attention, and
  // `sliding` transformers' reading of the layers with a sliding window.
  // `converted` is llama.cpp's reading of the layers of `reference`. If the
  // model does not have both kinds of layers, `reference` is for the first
  // layers that rotate, and `sliding` is nullopt. All three are nullopt without
  // a configuration that rotates.
  std::optional<ResolvedRope> reference = {}, sliding = {}, converted = {};
  // `explained` is true if a finding already says that the frequencies differ,
  // and `explained_amplitude` if a finding already says that the amplitude
  // differs. The checks that run later do not report this difference again.
  bool explained = false, explained_amplitude = false;
};

// True if a and b differ by more than a relative tolerance.
inline bool DiffersBy(double a, double b, double tolerance = kKeyTolerance) {
  return RelativeDifference(a, b) > tolerance;
}

// Returns the number `taken` as text. If the file does not give the number, the
// text begins with `otherwise`.
std::string GivenOr(const char* otherwise, bool given, double taken);

// Parts of CheckGguf() (gguf_scaling_checks.cc).

// Compares the scaling type, the factor and the original length with the
// reference's. Needs a reference.
void CheckGgufScaling(GgufCase* one);

// Reports a file that needs an original length and does not have it.
void CheckGgufOriginalLength(GgufCase* one);

// Compares the tensors of factors with the file's keys, with each other and
// with the reference.
void CheckGgufFactors(GgufCase* one);

}  // namespace posenc::core::doctor
