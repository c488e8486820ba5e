// The client of a command. It calls the server that --server names. Without
// --server it calls a server inside this process, so that no command needs a
// running server.

#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "client/tools/arguments/options.h"
#include "posenc/client.h"
#include "server/service/server.h"

namespace posenc::cli {

class Connection {
 public:
  // Does not wait for the server: if no server answers, the first call fails.
  // Errors of flags, such as a malformed --timeout, have exit code 2.
  static absl::StatusOr<Connection> Open(const GlobalFlags& flags);

  const Client& client() const { return client_; }

 private:
  Connection(std::unique_ptr<server::Server> server, Client client)
      : server_(std::move(server)), client_(std::move(client)) {}

  // Null with --server. Declared first, because the server must outlive the
  // client.
  std::unique_ptr<server::Server> server_;
  Client client_;
};

}  // namespace posenc::cli
