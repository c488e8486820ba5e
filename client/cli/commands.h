// The commands. Each adds itself to the program and returns what runs it.

#pragma once

#include <functional>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "client/cli/options.h"

namespace posenc::cli {

using Command = std::function<absl::Status()>;

// Flags live as long as the returned function; `globals` must outlive it.
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
Command AddSample(CLI::App* app, const GlobalFlags* globals);
Command AddCheck(CLI::App* app, const GlobalFlags* globals);

}  // namespace posenc::cli
