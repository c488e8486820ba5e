// The flags of a posenc.v1.AbsoluteEncoding. `table` prints its rows, and `add`
// adds them to embeddings.

#pragma once

#include "CLI/CLI.hpp"
#include "client/cli/field_flags.h"

namespace posenc::cli {

// `flags` must set fields of an AbsoluteEncoding.
void AddAbsoluteFlags(CLI::App* app, FieldFlags* flags);

}  // namespace posenc::cli
