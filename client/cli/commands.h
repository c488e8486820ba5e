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

// The returned function owns the command's flags, which CLI11 writes to while
// it parses. `globals` must outlive it.
Command AddInfo(CLI::App* app, const GlobalFlags* globals);
Command AddResolve(CLI::App* app, const GlobalFlags* globals);
Command AddTable(CLI::App* app, const GlobalFlags* globals);
Command AddApply(CLI::App* app, const GlobalFlags* globals);
Command AddAdd(CLI::App* app, const GlobalFlags* globals);
Command AddReposition(CLI::App* app, const GlobalFlags* globals);
Command AddPositions(CLI::App* app, const GlobalFlags* globals);
Command AddBias(CLI::App* app, const GlobalFlags* globals);
Command AddScores(CLI::App* app, const GlobalFlags* globals);
Command AddConvert(CLI::App* app, const GlobalFlags* globals);
Command AddAnalyze(CLI::App* app, const GlobalFlags* globals);
Command AddPlot(CLI::App* app, const GlobalFlags* globals);
Command AddSample(CLI::App* app, const GlobalFlags* globals);
Command AddCheck(CLI::App* app, const GlobalFlags* globals);
Command AddDoctor(CLI::App* app, const GlobalFlags* globals);
Command AddExplore(CLI::App* app, const GlobalFlags* globals);
Command AddCompletion(CLI::App* app, const GlobalFlags* globals);
Command AddMan(CLI::App* app, const GlobalFlags* globals);

// Prints the completions of the last word of a command line, one on a line: a
// word, or a word, a tab and its meaning, or ":files" for the names of files.
// `app` has all commands.
void PrintCandidates(CLI::App* app, const std::vector<std::string>& words);

}  // namespace posenc::cli
