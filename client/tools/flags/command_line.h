// Help, checks of arguments and gRPC's log, for posenc and posenc-load.

#pragma once

#include <string>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"

namespace posenc::flags {

// The format of --help. Footers stay unchanged: CLI11 2.5 and later would
// reflow them, and lose the indentation of examples. A flag is shown with its
// type and default, but without CLI11's lists of allowed values and of flags
// that exclude or need each other. These lists would be longer than the rest of
// the help, and error messages have the same facts.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_option_opts(const CLI::Option* option) const override;
  std::string make_footer(const CLI::App* /*app*/) const override { return ""; }
  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override;
};

// Hides gRPC's lines on standard error, unless GRPC_VERBOSITY is set, because
// commands print each error themselves. Must be called before any function of
// gRPC.
void SilenceGrpc();

// Refuses arguments that CLI11 would misread. Must be called after all flags
// have been added, and before CLI11 parses.
//
// After this call, flags for whole numbers (N, DIM, HEADS, ..) of `app` and its
// commands accept only signed decimal numbers of 64 bits without leading zeros.
// CLI11 would read 010 as 8 and 0x10 as 16, and replace a number that overflows
// by the nearest number that fits. Returns INVALID_ARGUMENT if an argument is
// `--flag=` without a value, because CLI11 would take the next argument as the
// value. The error message begins with the flag.
absl::Status CheckArguments(CLI::App* app, int argc, const char* const* argv);

}  // namespace posenc::flags
