// What is wrong with a command line that CLI11 refuses: a command or flag that
// there is not, and which one may have been meant.

#pragma once

#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/string_view.h"

namespace posenc::cli {

// The candidate that `word` is nearest to, if it is near enough to be meant: a
// third of its letters may be wrong, and it may be the beginning of one
// candidate. Empty if there is none.
std::string NearestWord(absl::string_view word,
                        const std::vector<std::string>& candidates);

// "resolv: is no command; did you mean resolve?", or "--presett: is no flag of
// `posenc resolve`; did you mean --preset?", or that no command is given; or
// nothing.
std::string FindMisspelt(const CLI::App& app, int argc,
                         const char* const* argv);

// Of the first word that is no flag: "plto: is no command; did you mean plot?",
// or nothing if it is a command, or if there is no such word.
std::string FindUnknownCommand(const CLI::App& app, int argc,
                               const char* const* argv);

// The flag of the command that stands for the field that a server's error
// names: "--compare-layer-index" for "compare_with.layer_index: ...". Empty if
// the message begins with no field, or with one that is no flag.
std::string FlagOfField(const CLI::App& command, absl::string_view message);

}  // namespace posenc::cli
