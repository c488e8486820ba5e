// Pipes: "-" as the value of a flag that names a file.
//
// Flags that begin with --out write, all others read. Standard input can be
// read once, and standard output takes one file; then all messages of a command
// go to standard error.

#pragma once

#include "CLI/CLI.hpp"
#include "absl/status/status.h"

namespace posenc::cli {

// Must be called after the command line is parsed, before anything is printed.
// Exit code 2, naming the flags, if several of them read or write "-", or if a
// tensor would be written to a terminal.
absl::Status PrepareStandardStreams(const CLI::App& command);

}  // namespace posenc::cli
