// Reads all descriptions of one checkpoint. Finds where two descriptions
// disagree, and where two readers (such as transformers and vLLM) read one
// description in different ways. A finding says at which distance the results
// begin to differ, and which key repairs the difference.
//
// The first config.json is the reference. Without a config.json, the first
// params.json is the reference. Without a reference, each GGUF file and each
// saved table is checked alone. core/rope/kept.h computes the distances.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/base/tensor.h"
#include "core/doctor/finding.h"
#include "core/interpretation/formats/gguf_file.h"
#include "core/interpretation/formats/gguf_rope.h"
#include "core/rope/kept.h"

namespace posenc::core::doctor {

// posenc.v1.DescriptionKind has the same numbers.
enum class InputKind {
  kConfig = 1,
  kParams = 2,
  kTokenizer = 3,
  kGguf = 4,
  kSafetensors = 5,
};

// A table of frequencies in a checkpoint.
struct SavedTable {
  std::string name;
  Dtype dtype = Dtype::kFloat32;
  std::vector<double> values;
};

// The rows of the first head in the weight of a query projection. Each row has
// only its leading elements.
struct QueryRows {
  std::string name;
  std::vector<std::vector<double>> rows;
};

struct DoctorInput {
  InputKind kind = InputKind::kConfig;
  std::string path;
  std::string text;  // for the kinds that are JSON
  std::optional<interpretation::GgufRope> gguf;
  std::vector<SavedTable> tables;
  std::optional<std::int64_t> key_rows;  // number of rows of a k_proj.weight
  std::optional<QueryRows> query;
  std::string unreadable;  // why it cannot be read; empty if it was read
};

struct DoctorOptions {
  std::vector<std::string> readers;  // "vllm" or "vllm@0.20"; empty: all
  std::optional<std::int64_t> length;
  std::string runtime;  // the command line of an engine
};

struct InputReport {
  std::string path;
  InputKind kind = InputKind::kConfig;
  std::string model_type;
  std::string content_hash;  // empty if the input has no rope
  std::string unreadable;
  std::string spec;  // the rope in a few words
};

struct Diagnosis {
  std::vector<InputReport> inputs;
  std::vector<Finding> findings;  // worst first
  std::int64_t length = 0;

  int Count(Severity severity) const;
  bool unreadable() const;
};

// Returns INVALID_ARGUMENT for an unknown reader, a version that cannot be
// applied, a length outside of [1, 2^31], or a runtime that ParseRuntime()
// refuses. Fields: "readers[i]", "length", "runtime".
absl::Status CheckOptions(const DoctorOptions& options);

// Returns the errors of CheckOptions and of `stop`. Diagnose calls `stop`
// often, but not while one reader reads one configuration. Faults of an input
// are in the input's report.
absl::StatusOr<Diagnosis> Diagnose(std::vector<DoctorInput> inputs,
                                   const DoctorOptions& options,
                                   const StopAsked& stop = nullptr);

// Returns why a text is not a JSON object, for example "not JSON: line 1,
// column 38". Returns "" for a JSON object.
std::string JsonFault(absl::string_view text);

}  // namespace posenc::core::doctor
