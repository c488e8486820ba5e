// Checks of a model's files other than the first config.json, and of an
// engine's command line. Most of these checks compare a file or flag with that
// config.json.

#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "core/doctor/config_case.h"
#include "core/doctor/doctor.h"
#include "core/doctor/runtime.h"
#include "core/interpretation/json_object.h"

namespace posenc::core::doctor {

// A description of a checkpoint, and the content that was read from it.
struct Input : DoctorInput {
  interpretation::ParsedText parsed = {};   // for the kinds that are JSON
  std::unique_ptr<ConfigCase> config = {};  // for configurations
};

// Runs the checks gguf.* on the GGUF after the command line has changed it.
// `config` may be null. `all` has all inputs, because the finding about the
// base tells whether some input has a table with the GGUF's base.
void CheckGguf(const Input& input, const std::vector<Input>& all,
               const ConfigCase* config, const Runtime& runtime,
               std::vector<Finding>* findings);

// Runs the check gguf.pairing: compares the rows of a query projection in the
// GGUF with the rows in the checkpoint from which the GGUF was converted.
void CheckPairing(const DoctorInput& gguf, const DoctorInput& checkpoint,
                  const ConfigCase& config, std::vector<Finding>* findings);

// Returns the base of a table of geometric frequencies without scaling; nullopt
// for any other table.
std::optional<double> FittedBase(const SavedTable& table);

// Runs the checks tables.*. `config` may be null.
void CheckTables(const DoctorInput& input, const ConfigCase* config,
                 std::vector<Finding>* findings);

// Runs the check params.config-differs.
void CheckParams(const Input& input, const ConfigCase& config,
                 std::vector<Finding>* findings);

// Runs the check config.tokenizer-length.
void CheckTokenizer(const Input& input, const ConfigCase& config,
                    std::vector<Finding>* findings);

// Compares a second configuration with the first.
void CompareConfigs(const ConfigCase& first, const ConfigCase& second,
                    std::vector<Finding>* findings);

// Runs the checks runtime.*. `config` and `gguf` may be null.
void CheckRuntime(const Runtime& runtime, const ConfigCase* config,
                  const interpretation::GgufRope* gguf,
                  std::vector<Finding>* findings);

}  // namespace posenc::core::doctor
