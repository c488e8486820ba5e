// The client that a command calls: of the server that --server names, or
// without it of a server that is embedded into this process, so that every
// command works on its own.

#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cli/options.h"
#include "posenc/client.h"
#include "server/server.h"

namespace posenc::cli {

class Connection {
 public:
  // Does not wait for the server: an address where nobody answers is the error
  // of the first call. Exit code 2 if --timeout is no duration.
  static absl::StatusOr<Connection> Open(const GlobalFlags& flags);

  const Client& client() const { return client_; }

 private:
  Connection(std::unique_ptr<server::Server> server, Client client)
      : server_(std::move(server)), client_(std::move(client)) {}

  // Null with --server. Declared first: it must outlive the client.
  std::unique_ptr<server::Server> server_;
  Client client_;
};

}  // namespace posenc::cli
