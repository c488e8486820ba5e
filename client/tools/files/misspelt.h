// Finds unknown commands and flags in a command line that CLI11 refuses, and
// the flags of fields that the server refuses.

#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "client/tools/flags/command_line.h"

namespace posenc::cli {

// Returns an error message for the first word that the parser has left over:
// "resolv: is no command; see `posenc --help`", or "--presett: is no flag of
// `posenc resolve`; see `posenc resolve --help`". If no command is given, the
// message says so. Empty if a command is given and all flags are known.
std::string FindMisspelt(const CLI::App& app);

// Returns the command's flag for the path of an error's field:
// "--compare-layer-index" for "compare_with.layer_index". Empty if there is no
// such flag.
std::string FlagOfField(const CLI::App& command, absl::string_view path);

}  // namespace posenc::cli
