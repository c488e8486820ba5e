// Checks of a model's other files, and of an engine's command line. Most of
// these checks compare a file or flag with the config.json.

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

// Runs the checks gguf.* on the GGUF after the command line has changed it.
// `config` may be null. `all` has all inputs. The finding about the base tells
// whether one of them has a table with the GGUF's base.
void CheckGguf(const DoctorInput& input, const std::vector<DoctorInput>& all,
               const ConfigCase* config, const Runtime& runtime,
               const Reach& reach, std::vector<Finding>* findings);

// Runs the check gguf.pairing: compares the rows of a query projection in the
// GGUF with the rows in the checkpoint from which the GGUF was converted.
void CheckPairing(const DoctorInput& gguf, const DoctorInput& checkpoint,
                  const ConfigCase& config, std::vector<Finding>* findings);

// Returns the base if the table is geometric and not scaled, else nullopt.
std::optional<double> FittedBase(const SavedTable& table);

// Runs the checks tables.*. `config` may be null.
void CheckTables(const DoctorInput& input, const ConfigCase* config,
                 std::vector<Finding>* findings);

// Runs the check params.config-differs. `params` is the input's JSON.
void CheckParams(const DoctorInput& input, const json& params,
                 const ConfigCase& config, std::vector<Finding>* findings);

// Runs the check config.tokenizer-length. `tokenizer` is the input's JSON.
void CheckTokenizer(const DoctorInput& input, const json& tokenizer,
                    const ConfigCase& config, std::vector<Finding>* findings);

// Compares a second configuration with the first.
void CompareConfigs(const ConfigCase& first, const ConfigCase& second,
                    std::vector<Finding>* findings);

// The command line of an engine.
struct Runtime {
  enum class Engine { kUnknown, kVllm, kSglang, kLlamaCpp };
  Engine engine = Engine::kUnknown;
  // The known flags with their values, in order.
  std::vector<std::pair<std::string, std::string>> flags;

  // Returns the value of the last flag with this name; null if no flag has it.
  const std::string* Find(absl::string_view flag) const;
  std::optional<double> Number(absl::string_view flag) const;
};

// The flags that set the longest sequence.
inline constexpr const char* kLengthFlags[] = {"--max-model-len",
                                               "--context-length", "-c"};

// Parses a flag's JSON. If the text is too long or is not JSON, is_discarded()
// of the result is true.
json ParseSmall(const std::string& text);

// Splits a command line into words like a shell (with quotes, and with
// backslashes outside of single quotes), and finds the known flags. Returns
// INVALID_ARGUMENT (field "runtime") for an open quote, or for a flag whose
// value is missing or broken JSON.
absl::StatusOr<Runtime> ParseRuntime(absl::string_view command);

// Returns the length that the engine serves; 0 if no flag sets it.
std::int64_t RuntimeLength(const Runtime& runtime);

// Replaces keys of a GGUF by values of flags, as llama.cpp does.
void ApplyRuntime(const Runtime& runtime, interpretation::GgufRope* gguf);

// Runs the checks runtime.*. `config` and `gguf` may be null.
void CheckRuntime(const Runtime& runtime, const ConfigCase* config,
                  const interpretation::GgufRope* gguf,
                  std::vector<Finding>* findings);

}  // namespace posenc::core::doctor
