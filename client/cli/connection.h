// A client of the server that the flags name, or of one inside this process,
// and how results are printed.

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
  static absl::StatusOr<Connection> Open(const GlobalFlags& flags);

  const Client& client() const { return client_; }

 private:
  Connection(std::unique_ptr<server::Server> server, Client client)
      : server_(std::move(server)), client_(std::move(client)) {}

  std::unique_ptr<server::Server> server_;  // null with --server
  Client client_;
};

}  // namespace posenc::cli
