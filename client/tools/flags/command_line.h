// Flags, help and checks of arguments, and gRPC's log, for posenc and
// posenc-load. AddFlag() hides CLI11 from the sources that add flags, because
// including CLI11 adds 4 s to the compilation of a source.

#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace posenc::flags {

// The variable that a flag sets, or a function that takes the flag's text. A
// flag that sets a bool has no value.
using Target =
    std::variant<bool*, std::string*, std::int32_t*, std::int64_t*, double*,
                 std::optional<std::int32_t>*, std::optional<std::int64_t>*,
                 std::optional<double>*, std::vector<std::string>*,
                 std::function<void(const std::string&)>>;

struct FlagRules {
  bool required = false;
  bool show_default = false;  // --help shows the variable's value
  std::string group;          // heading in --help; empty: CLI11's own
  // The least and the largest allowed number.
  std::optional<std::pair<std::int64_t, std::int64_t>> range;
  // Returns what is wrong with a value; empty if it is valid.
  std::function<std::string(const std::string&)> fault;
  // The flag of a list takes only the next argument, not all following
  // arguments.
  bool one_value = false;
  char delimiter = '\0';  // between the elements of one value
};

// Adds a flag, or an argument if the name does not begin with a dash. --help
// shows `type` as the name of the value. Whole numbers are signed decimal
// numbers of 64 bits without leading zeros.
CLI::Option* AddFlag(CLI::App* app, const std::string& name, Target target,
                     const std::string& type, const std::string& help,
                     const FlagRules& rules = {});

// Makes --help show this default.
void ShowDefault(CLI::App* app, const std::string& name,
                 const std::string& value);

// Returns the names of the group's flags that are given.
std::vector<std::string> GivenFlags(const CLI::App& app,
                                    const std::string& group);

// Sets the format of --help, for `app` and the commands that are added later. A
// flag is shown with its type and default, but without CLI11's lists of allowed
// values and of flags that exclude or need each other. These lists would be
// longer than the rest of the help, and error messages have the same facts.
void FormatHelp(CLI::App* app);

// Hides gRPC's lines on standard error, unless GRPC_VERBOSITY is set, because
// commands print each error themselves. Must be called before any function of
// gRPC.
void SilenceGrpc();

// Returns INVALID_ARGUMENT, with a message that begins with the flag, if an
// argument is `--flag=` without a value. CLI11 would take the next argument as
// the value of such a flag.
absl::Status CheckArguments(int argc, const char* const* argv);

}  // namespace posenc::flags
