// `posenc explore`: serves the explorer's page to this machine's browser.

#include <csignal>
#include <cstdio>
#include <memory>

#include "absl/strings/str_cat.h"
#include "client/tools/arguments/connection.h"
#include "client/tools/cli/commands.h"
#include "client/tools/explorer/explorer.h"
#include "client/tools/files/print.h"
#include "client/tools/files/status.h"

namespace posenc::cli {
namespace {

constexpr int kDefaultPort = 8080;

absl::Status RunExplore(int port, const GlobalFlags& globals) {
  // Blocks the signals before any thread begins, so that no thread receives
  // them.
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGINT);
  sigaddset(&ends, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &ends, nullptr);

  ASSIGN_OR_RETURN(const Connection connection, Connection::Open(globals));
  const absl::StatusOr<std::unique_ptr<explorer::Explorer>> explorer =
      explorer::Explorer::Start(port, connection.client());
  if (!explorer.ok()) {
    return UsageError(absl::StrCat("--port: ", explorer.status().message()));
  }
  const std::string url = absl::StrCat("http://", (*explorer)->address(), "/");
  if (globals.json) {
    PrintJson({{"url", url}});
  } else {
    std::printf("explorer on %s; Ctrl-C ends it\n", url.c_str());
  }
  std::fflush(stdout);
  int signal = 0;
  sigwait(&ends, &signal);
  return absl::OkStatus();
}

}  // namespace

Command AddExplore(CLI::App* app, const GlobalFlags* globals) {
  const auto port = std::make_shared<int>(kDefaultPort);
  AddFlag(app, "--port", port.get(), "N", "Port on 127.0.0.1; 0: any free one",
          {.show_default = true, .range = {{0, 65535}}});
  return [port, globals] { return RunExplore(*port, *globals); };
}

}  // namespace posenc::cli
