// The flags that describe a posenc.v1.Bias: one of six rules for a bias, or one
// of three for indices of relative positions.

#pragma once

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "client/cli/field_flags.h"
#include "posenc/client.h"

namespace posenc::cli {

// `flags` are of a Bias.
void AddBiasFlags(CLI::App* app, FieldFlags* flags);

// The message that the flags stand for. Reads the files that they name, into
// the message. Errors have exit code 2 (flags) or 3 (files).
absl::StatusOr<v1::Bias> BuildBias(const FieldFlags& flags);

}  // namespace posenc::cli
