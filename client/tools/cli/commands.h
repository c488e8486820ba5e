// The commands of the program. Each function adds the flags of its command to a
// CLI11 subcommand. It returns the function that runs the command after the
// command line is parsed.

#pragma once

#include <functional>

#include "absl/status/status.h"
#include "client/tools/arguments/options.h"

namespace posenc::cli {

using Command = std::function<absl::Status()>;

// Adds a command's flags. The returned function owns the values of the flags,
// to which CLI11 writes while it parses. `globals` must outlive the returned
// function.
using AddCommand = Command(CLI::App* app, const GlobalFlags* globals);
AddCommand AddInfo, AddResolve, AddTable, AddApply, AddAdd, AddReposition,
    AddPositions, AddBias, AddScores, AddConvert, AddAnalyze, AddPlot,
    AddSample, AddCheck, AddDoctor, AddExplore;

}  // namespace posenc::cli
