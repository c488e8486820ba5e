// Finds unknown commands and flags in a command line that CLI11 refuses, and
// suggests the nearest names.

#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "client/tools/flags/command_line.h"

namespace posenc::cli {

// Returns the candidate nearest to `word`, if at most a third of the word's
// letters are wrong, or else the only candidate that begins with `word`. Empty
// if there is no such candidate.
std::string NearestWord(absl::string_view word,
                        const std::vector<std::string>& candidates);

// Returns an error message for the first word that the parser has left over:
// "resolv: is no command; did you mean resolve?", or "--presett: is no flag of
// `posenc resolve`; did you mean --preset?". If no command is given, the
// message says so. Empty if a command is given and all flags are known.
std::string FindMisspelt(const CLI::App& app);

// Returns the command's flag for the path of an error's field:
// "--compare-layer-index" for "compare_with.layer_index". Empty if there is no
// such flag.
std::string FlagOfField(const CLI::App& command, absl::string_view path);

}  // namespace posenc::cli
