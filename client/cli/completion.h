// `posenc completion SHELL`: a script for the shell, made of the commands and
// flags that CLI11 knows, so that it cannot be out of date.

#pragma once

#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "client/cli/commands.h"

namespace posenc::cli {

// A script that completes commands, flags, and values as far as they are files
// or have names. `shell` is bash, zsh or fish; `presets` are names for
// --preset.
std::string CompletionScript(const CLI::App& app, const std::string& shell,
                             const std::vector<std::string>& presets);

// As the commands of commands.h are; `app` is a command of the program.
Command AddCompletion(CLI::App* app, const GlobalFlags* globals);

}  // namespace posenc::cli
