// Checks of what stands beside a config.json, against it.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "core/doctor/config_case.h"
#include "core/doctor/doctor.h"

namespace posenc::core::doctor {

struct Runtime;

// gguf.*, of the file as the command line has it read; `config` may be null.
// `all` are the inputs, which may have tables that speak for the file.
void CheckGguf(const DoctorInput& input, const std::vector<DoctorInput>& all,
               const ConfigCase* config, const Runtime& runtime,
               const Reach& reach, std::vector<Finding>* findings);

// gguf.pairing: the rows of a query projection in the GGUF against those in the
// checkpoint that it was converted from.
void CheckPairing(const DoctorInput& gguf, const DoctorInput& checkpoint,
                  const ConfigCase& config, std::vector<Finding>* findings);

// The base of a table that is geometric and not scaled; nullopt for others.
std::optional<double> FittedBase(const SavedTable& table);

// tables.*; `config` may be null.
void CheckTables(const DoctorInput& input, const ConfigCase* config,
                 std::vector<Finding>* findings);

// params.config-differs.
void CheckParams(const DoctorInput& input, const ConfigCase& config,
                 std::vector<Finding>* findings);

// config.tokenizer-length.
void CheckTokenizer(const DoctorInput& input, const ConfigCase& config,
                    std::vector<Finding>* findings);

// A second configuration against the first.
void CompareConfigs(const ConfigCase& first, const ConfigCase& second,
                    std::vector<Finding>* findings);

// The command line of an engine.
struct Runtime {
  enum class Engine { kUnknown, kVllm, kSglang, kLlamaCpp };
  Engine engine = Engine::kUnknown;
  // Flags that are understood, with their values, in order.
  std::vector<std::pair<std::string, std::string>> flags;

  const std::string* Find(absl::string_view flag) const;
};

// Words are parted as the shell does: quotes, and backslashes outside of single
// ones. INVALID_ARGUMENT, of field "runtime", for an open quote, a flag without
// its value, or one whose value is no JSON where JSON is wanted.
absl::StatusOr<Runtime> ParseRuntime(absl::string_view command);

// The length that it serves; 0 if it does not say.
std::int64_t RuntimeLength(const Runtime& runtime);

// Values of flags replace keys of a GGUF, as llama.cpp has it.
void ApplyRuntime(const Runtime& runtime, interpretation::GgufRope* gguf);

// runtime.*; `config` and `gguf` may be null.
void CheckRuntime(const Runtime& runtime, const ConfigCase* config,
                  const interpretation::GgufRope* gguf,
                  std::vector<Finding>* findings);

}  // namespace posenc::core::doctor
