#include "client/cli/standard_streams.h"

#include <unistd.h>

#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/status.h"

namespace posenc::cli {
namespace {

// Returns true for "-", or "-:NAME", a tensor of standard input.
bool NamesStream(const std::string& value) {
  return value == "-" || absl::StartsWith(value, "-:");
}

}  // namespace

absl::Status PrepareStandardStreams(const CLI::App& command) {
  std::vector<std::string> reading, writing;
  for (const CLI::Option* const option : command.get_options()) {
    if (option->get_type_name() != "FILE") continue;
    const std::string name = option->get_name();
    for (const std::string& value : option->results()) {
      if (!NamesStream(value)) continue;
      (absl::StartsWith(name, "--out") ? writing : reading).push_back(name);
    }
  }
  if (reading.size() > 1) {
    return UsageError(absl::StrCat(absl::StrJoin(reading, ", "),
                                   ": several are '-'; standard input can be "
                                   "read once"));
  }
  if (writing.size() > 1) {
    return UsageError(absl::StrCat(absl::StrJoin(writing, ", "),
                                   ": several are '-'; standard output takes "
                                   "one file"));
  }
  if (writing.empty()) return absl::OkStatus();
  if (isatty(STDOUT_FILENO)) {
    return UsageError(absl::StrCat(writing[0],
                                   ": standard output is a terminal; redirect "
                                   "it, or name a file"));
  }
  // The file is written to the descriptor. In glibc, stdout is a variable that
  // programs may set.
  stdout = stderr;
  return absl::OkStatus();
}

}  // namespace posenc::cli
