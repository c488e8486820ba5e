// Reads all descriptions of one checkpoint and says where they, or their
// readers, disagree: from which distance on, and which key repairs it.
//
// The first config.json is the reference. Without one, the reference is the
// first params.json, GGUF or saved table, in this order. core/rope/kept.h
// computes the numbers.

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

// Numbered as posenc.v1.DescriptionKind.
enum class InputKind {
  kConfig = 1,
  kParams = 2,
  kTokenizer = 3,
  kGguf = 4,
  kSafetensors = 5,
};

absl::string_view InputKindName(InputKind kind);

// A table of frequencies in a checkpoint.
struct SavedTable {
  std::string name;
  Dtype dtype = Dtype::kFloat32;
  std::vector<double> values;
};

// The leading channels of the first head's rows of a query projection.
struct QueryRows {
  std::string name;
  std::vector<std::vector<double>> rows;
};

struct DoctorInput {
  InputKind kind = InputKind::kConfig;
  std::string path;
  std::string text;  // of JSON
  std::optional<interpretation::GgufRope> gguf;
  std::vector<SavedTable> tables;
  std::optional<std::int64_t> key_rows;  // of a k_proj.weight
  std::optional<QueryRows> query;
  std::string unreadable;  // why it cannot be read; empty if it can
};

struct DoctorOptions {
  std::vector<std::string> readers;  // "vllm" or "vllm@0.20"; empty: all
  std::optional<std::int64_t> length;
  std::string runtime;  // a command line
};

struct InputReport {
  std::string path;
  InputKind kind = InputKind::kConfig;
  std::string model_type;
  std::string content_hash;  // empty if there is none
  std::string unreadable;
  std::string spec;  // in a few words
};

struct Diagnosis {
  std::vector<InputReport> inputs;
  std::vector<Finding> findings;  // worst first
  std::int64_t length = 0;

  int Count(Severity severity) const;
  bool unreadable() const;
};

// Returns INVALID_ARGUMENT for an unknown reader, a length below 1, or a
// runtime with broken quotes or JSON. Fields: "readers[i]", "length",
// "runtime".
absl::Status CheckOptions(const DoctorOptions& options);

// Returns the errors of CheckOptions and of `stop`, which it calls often, but
// not while it reads one configuration. Faults of an input are in its report.
absl::StatusOr<Diagnosis> Diagnose(std::vector<DoctorInput> inputs,
                                   const DoctorOptions& options,
                                   const StopAsked& stop = nullptr);

// Says why a text is no JSON object: "not JSON: line 1, column 38". Returns ""
// for an object.
std::string JsonFault(absl::string_view text);

// Returns the JSON that the command prints with --json.
std::string DiagnosisJson(const Diagnosis& diagnosis);

}  // namespace posenc::core::doctor
