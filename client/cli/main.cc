// posenc: positional encodings from the command line.

#include <cstdio>
#include <cstring>
#include <exception>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "client/cli/commands.h"
#include "client/cli/session.h"
#include "client/cli/status.h"
#include "server/server.h"

namespace posenc::cli {
namespace {

constexpr char kFooter[] =
    "\nExit codes: 0 ok; 1 the call failed, or `check` found an error; 2 wrong "
    "usage;\n3 a file cannot be read, written or parsed.";

int Main(int argc, char** argv) {
  CLI::App app("Positional encodings: inspect, build tables, rotate tensors.",
               "posenc");
  app.footer(kFooter);
  app.set_version_flag("--version", server::kVersion);
  app.require_subcommand(1);
  app.fallthrough();  // global flags may follow the command
  GlobalFlags globals;
  AddGlobalFlags(&app, &globals);

  std::vector<std::pair<CLI::App*, Command>> commands;
  const auto add = [&](const char* name, const char* description,
                       Command (*add_flags)(CLI::App*, const GlobalFlags*)) {
    CLI::App* const command = app.add_subcommand(name, description);
    command->footer(kFooter);
    commands.emplace_back(command, add_flags(command, &globals));
  };
  add("info", "What the server is and knows", AddInfo);
  add("resolve", "Frequencies, amplitude and assumptions of an encoding",
      AddResolve);
  add("table", "Cosines and sines, or a sinusoidal table", AddTable);
  add("apply", "Rotate q and k", AddApply);
  add("sample", "Make seeded q and k to try things with", AddSample);
  add("check", "Check a rotation against an independent float64 one", AddCheck);

  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {  // --help, --version
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    // The flag itself may not have been reached.
    bool json = false;
    for (int i = 1; i < argc; ++i) json |= !std::strcmp(argv[i], "--json");
    PrintError(UsageError(error.what()), json);
    return kExitUsage;
  }
  for (const auto& [command, run] : commands) {
    if (!command->parsed()) continue;
    const absl::Status status = run();
    if (!status.ok()) PrintError(status, globals.json);
    return ExitCode(status);
  }
  return kExitUsage;
}

}  // namespace
}  // namespace posenc::cli

// Libraries underneath throw, from exhausted memory if nothing else.
int main(int argc, char** argv) {
  try {
    return posenc::cli::Main(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "posenc: %s\n", error.what());
  } catch (...) {
    std::fputs("posenc: unknown exception\n", stderr);
  }
  return posenc::cli::kExitFailed;
}
