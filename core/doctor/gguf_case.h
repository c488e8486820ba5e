// One GGUF file beside the configuration that it was converted from: what the
// checks of gguf.* ask.

#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/doctor/config_case.h"
#include "core/doctor/input_checks.h"

namespace posenc::core::doctor {

// float32 keys and the converter's float32 arithmetic.
inline constexpr double kGgufTolerance = 1e-6;

// True unless a and b are equal but for a relative error.
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
  bool NeedsFreqs() const;            // a GGUF has it as a tensor
  std::string ReferenceText() const;  // "yarn by 4 from 32768"

  // The file has factors as tensors.
  bool HasTensors() const;

  // What the file gives, with the pairs of `like`: pairing is not compared, as
  // rows are permuted on conversion.
  std::optional<ResolvedRope> Resolve(const ResolvedRope& like) const;

  const std::string& path;
  const interpretation::GgufRope& file;
  interpretation::GgufRope gguf;  // as the command line has it read
  const ConfigCase* config;       // may be null
  const Reach& reach;
  // transformers' reading of the layers with full attention, transformers' of
  // those with a sliding window, and llama.cpp's of the former. Absent without
  // a configuration that rotates.
  std::optional<ResolvedRope> reference, sliding, converted;
  // Whether a finding has told already that the frequencies differ, and that
  // the amplitude does.
  bool explained = false, explained_amplitude = false;

 private:
  void FindReference();
  Verdict FileVerdict() const;

  std::vector<Finding>* findings_;
};

// gguf.factor-tensors: rope_freqs and the pair of longrope.
void CheckFactorTensors(GgufCase* of);

}  // namespace posenc::core::doctor
