// `posenc man`: the manual page, made of the same help that --help prints.

#pragma once

#include <string>

#include "CLI/CLI.hpp"
#include "client/cli/commands.h"

namespace posenc::cli {

// In the macros of man(7).
std::string ManPage(const CLI::App& app);

// As the commands of commands.h are; `app` is a command of the program.
Command AddMan(CLI::App* app, const GlobalFlags* globals);

}  // namespace posenc::cli
