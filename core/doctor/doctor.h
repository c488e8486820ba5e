// Reads all descriptions of one checkpoint and says where they, or their
// readers, disagree: since which distance, and which key mends it.
//
// The first config.json is the reference; without one the first of params.json,
// GGUF and saved tables. Numbers: core/rope/kept.h.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/doctor/finding.h"
#include "core/interpretation/gguf_file.h"
#include "core/interpretation/gguf_rope.h"
#include "core/rope/kept.h"
#include "core/tensor.h"

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

// A table of frequencies as a checkpoint holds it.
struct SavedTable {
  std::string name;
  Dtype dtype = Dtype::kFloat32;
  std::vector<double> values;
};

// The leading channels of some rows of a query projection: those of the first
// head.
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
  std::string unreadable;  // why nothing of it can be read; empty: it can
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

// INVALID_ARGUMENT for options that make no sense: an unknown reader, a length
// below 1, a runtime whose quotes or JSON are broken. Fields: "readers[i]",
// "length", "runtime".
absl::Status CheckOptions(const DoctorOptions& options);

// Errors are those of CheckOptions, and of `stop`, which is asked often but
// while one configuration is read. What is wrong with an input is in its
// report.
absl::StatusOr<Diagnosis> Diagnose(std::vector<DoctorInput> inputs,
                                   const DoctorOptions& options,
                                   const StopAsked& stop = nullptr);

// What is wrong with a text that is no JSON object: "not JSON: line 1, column
// 38"; "" if it is one.
std::string JsonFault(absl::string_view text);

// A diagnosis as the command's --json has it, in JSON.
std::string DiagnosisJson(const Diagnosis& diagnosis);

}  // namespace posenc::core::doctor
