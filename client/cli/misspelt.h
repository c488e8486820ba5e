// Finds unknown commands and flags in a command line that CLI11 refuses, and
// suggests the nearest ones.

#pragma once

#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/string_view.h"

namespace posenc::cli {

// Returns the candidate nearest to `word`, if at most a third of the word's
// letters are wrong, or the only candidate that begins with `word`. Empty if
// there is none.
std::string NearestWord(absl::string_view word,
                        const std::vector<std::string>& candidates);

// Returns "resolv: is no command; did you mean resolve?", or "--presett: is no
// flag of `posenc resolve`; did you mean --preset?", or a text that no command
// is given; empty if all words are known.
std::string FindMisspelt(const CLI::App& app, int argc,
                         const char* const* argv);

// Checks the first word that is no flag. Returns "plto: is no command; did you
// mean plot?", or nothing if it is a command, or if there is no such word.
std::string FindUnknownCommand(const CLI::App& app, int argc,
                               const char* const* argv);

// Returns the command's flag for the field of a server's error:
// "--compare-layer-index" for "compare_with.layer_index: ...". Empty if the
// message begins with no field, or with a field without a flag.
std::string FlagOfField(const CLI::App& command, absl::string_view message);

}  // namespace posenc::cli
