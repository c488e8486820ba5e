// The commands of the program. Each adds its flags to a CLI11 subcommand and
// returns the function that runs it once the command line is parsed.

#pragma once

#include <functional>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "client/cli/options.h"

namespace posenc::cli {

using Command = std::function<absl::Status()>;

// Adds a command's flags. The returned function owns them; CLI11 writes to them
// while it parses. `globals` must outlive it.
using AddCommand = Command(CLI::App* app, const GlobalFlags* globals);
AddCommand AddInfo, AddResolve, AddTable, AddApply, AddAdd, AddReposition,
    AddPositions, AddBias, AddScores, AddConvert, AddAnalyze, AddPlot,
    AddSample, AddCheck, AddDoctor, AddExplore, AddCompletion, AddMan;

// Prints the completions of the last word of a command line, one on a line: a
// word, or a word, a tab and its meaning, or ":files" for the names of files.
// `app` has all commands.
void PrintCandidates(CLI::App* app, const std::vector<std::string>& words);

}  // namespace posenc::cli
