// The commands of the program. Each adds its flags to a CLI11 subcommand and
// returns the function that runs it once the command line is parsed.

#pragma once

#include <functional>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "client/tools/arguments/options.h"

namespace posenc::cli {

using Command = std::function<absl::Status()>;

// Adds a command's flags. The returned function owns them; CLI11 writes to them
// while it parses. `globals` must outlive it.
using AddCommand = Command(CLI::App* app, const GlobalFlags* globals);
AddCommand AddInfo, AddResolve, AddTable, AddApply, AddAdd, AddReposition,
    AddPositions, AddBias, AddScores, AddConvert, AddAnalyze, AddPlot,
    AddSample, AddCheck, AddDoctor, AddExplore;

}  // namespace posenc::cli
