// One GGUF file beside the configuration that it was converted from, for the
// checks of gguf.*.

#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/doctor/config_case.h"
#include "core/doctor/input_checks.h"

namespace posenc::core::doctor {

// Allows for float32 keys and the converter's float32 arithmetic.
inline constexpr double kGgufTolerance = 1e-6;

// True unless a and b agree within a relative tolerance.
bool DiffersBy(double a, double b, double tolerance);

struct GgufCase {
  GgufCase(const DoctorInput& input, const ConfigCase* config,
           const Runtime& runtime, const Reach& reach,
           std::vector<Finding>* findings);

  // Adds the finding of a row; values follow the file's path.
  Finding& Add(absl::string_view id, std::vector<std::string> values,
               const std::vector<std::string>& keys);

  // The reference's scaling.
  double ReferenceFactor() const;  // 1 if it has none
  bool IsLinear() const;
  bool IsYarn() const;
  bool IsLongRope() const;
  bool NeedsFreqs() const;            // a GGUF stores it as a tensor
  std::string ReferenceText() const;  // "yarn by 4 from 32768"

  // True if the file has factors as tensors.
  bool HasTensors() const;

  // Resolves the file with the pairing and slice of `like`: these are not
  // compared, because conversion permutes rows.
  std::optional<ResolvedRope> Resolve(const ResolvedRope& like) const;

  const std::string& path;
  const interpretation::GgufRope& file;
  interpretation::GgufRope gguf;  // after the command line's changes
  const ConfigCase* config;       // may be null
  const Reach& reach;
  // transformers' reading of layers with full attention and of layers with a
  // sliding window, and llama.cpp's reading of the former. Absent without a
  // configuration that rotates.
  std::optional<ResolvedRope> reference, sliding, converted;
  // True once a finding says that the frequencies, or the amplitude, differ.
  bool explained = false, explained_amplitude = false;

 private:
  void FindReference();
  Verdict FileVerdict() const;

  std::vector<Finding>* findings_;
};

// gguf.factor-tensors: rope_freqs, and longrope's two lists.
void CheckFactorTensors(GgufCase* of);

}  // namespace posenc::core::doctor
