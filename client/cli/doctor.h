// `posenc doctor` (doctor.cc), as the commands of commands.h are.

#pragma once

#include "client/cli/commands.h"

namespace posenc::cli {

Command AddDoctor(CLI::App* app, const GlobalFlags* globals);

}  // namespace posenc::cli
