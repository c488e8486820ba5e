// The command line of posencd, and its environment: --max-waiting is
// POSENC_MAX_WAITING there; a flag beats the environment.

#pragma once

#include <optional>
#include <string>

#include "server/admin/admin_server.h"
#include "server/server.h"

namespace posenc::server {

struct Flags {
  ServerOptions options;
  AdminOptions admin;  // address empty: no admin port
  std::string ready_file;
  // Asks the server there for its health instead of serving.
  std::string probe;
  std::string probe_service;
};

// Nothing if the process has no more to do: `exit_code` is then 0 after
// --help and --version, 2 after a mistake, which `error` tells in one line.
std::optional<Flags> ParseFlags(int argc, char** argv, int* exit_code,
                                std::string* error);

}  // namespace posenc::server
