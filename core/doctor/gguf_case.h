// A GGUF file beside the configuration from which it was converted: what the
// checks gguf.* share.

#pragma once

#include <cmath>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/doctor/input_checks.h"

namespace posenc::core::doctor {

// Relative tolerance of keys, which the converter computes and stores in
// float32.
constexpr double kKeyTolerance = 1e-6;
// Relative tolerance of factors, which converters compute in float32.
constexpr double kFactorTolerance = 1e-5;

// True if a and b differ by more than a relative tolerance.
bool DiffersBy(double a, double b, double tolerance = kKeyTolerance);

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

// The arguments must outlive the case.
class GgufCase {
 public:
  GgufCase(const GgufCase&) = delete;
  GgufCase& operator=(const GgufCase&) = delete;
  GgufCase(const DoctorInput& input, const std::vector<DoctorInput>& all,
           const ConfigCase* config, const Runtime& runtime, const Reach& reach,
           std::vector<Finding>* findings);

  // The file's keys, without and with the command line's changes.
  const interpretation::GgufRope& file() const { return file_; }
  const interpretation::GgufRope& gguf() const { return gguf_; }
  const std::vector<DoctorInput>& all() const { return all_; }
  const ConfigCase* config() const { return config_; }  // may be null
  const std::string& config_path() const { return config_path_; }
  const Runtime& runtime() const { return runtime_; }

  // reference: transformers' reading of the layers with full attention.
  // sliding: transformers' reading of the layers with a sliding window.
  // converted: llama.cpp's reading of the layers with full attention. All are
  // nullopt without a configuration that rotates.
  const std::optional<ResolvedRope>& reference() const { return reference_; }
  const std::optional<ResolvedRope>& sliding() const { return sliding_; }
  const std::optional<ResolvedRope>& converted() const { return converted_; }

  // The reference's scaling; null if there is no reference, or if it has
  // another scaling.
  template <typename Scaling>
  const Scaling* ReferenceScaling() const {
    return reference_ ? std::get_if<Scaling>(&reference_->spec.scaling)
                      : nullptr;
  }
  const YarnScaling* Yarn() const { return ReferenceScaling<YarnScaling>(); }
  // These functions need a reference. ReferenceText: "yarn by 4 from 32768".
  double ReferenceFactor() const;
  std::string ReferenceText() const;

  // Resolves the file with the pairing and slice of `like`. These are not
  // compared, because the conversion permutes rows.
  std::optional<ResolvedRope> Resolve(const ResolvedRope& like) const;

  // Returns the names of the file's tensors of factors.
  std::vector<std::string> Tensors() const;

  // Adds a finding. In the texts of the row, $0 is the file's path, and
  // `values` are $1, $2, ...
  Finding& Add(absl::string_view id, Values values,
               std::vector<std::string> keys);
  // Adds a finding that explains the differing frequencies, so that no other
  // finding about frequencies is needed.
  Finding& Explain(absl::string_view id, const Values& values,
                   std::vector<std::string> keys);

  // True if a finding already says that the frequencies, or the amplitude,
  // differ.
  bool explained() const { return explained_; }
  bool explained_amplitude() const { return explained_amplitude_; }
  void MarkExplained() { explained_ = true; }
  void MarkAmplitudeExplained() { explained_amplitude_ = true; }

 private:
  void FindReference();
  // Compares the file with the reference.
  Verdict FileVerdict() const;

  const std::string& path_;
  const interpretation::GgufRope& file_;
  interpretation::GgufRope gguf_;
  const std::vector<DoctorInput>& all_;
  const ConfigCase* const config_;
  const std::string config_path_;
  const Runtime& runtime_;
  const Reach& reach_;
  std::optional<ResolvedRope> reference_, sliding_, converted_;
  bool explained_ = false, explained_amplitude_ = false;
  std::vector<Finding>* const findings_;
};

// Returns a number as text, after `otherwise` if it is not given.
std::string GivenOr(const char* otherwise, bool given, double taken);

// Parts of CheckGguf() (gguf_scaling_checks.cc). The first needs a reference.
void CheckGgufScaling(GgufCase* one);
void CheckGgufOriginalLength(GgufCase* one);
void CheckGgufFactors(GgufCase* one);

}  // namespace posenc::core::doctor
