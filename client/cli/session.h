// A client of the server that the flags name, or of one inside this process,
// and how results are printed.

#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cli/options.h"
#include "google/protobuf/message.h"
#include "nlohmann/json.hpp"
#include "posenc/client.h"
#include "server/server.h"

namespace posenc::cli {

class Session {
 public:
  static absl::StatusOr<Session> Open(const GlobalFlags& flags);

  const Client& client() const { return client_; }

 private:
  Session(std::unique_ptr<server::Server> server, Client client)
      : server_(std::move(server)), client_(std::move(client)) {}

  std::unique_ptr<server::Server> server_;  // null with --server
  Client client_;
};

// Fields as the proto names them, defaults included.
nlohmann::ordered_json ToJson(const google::protobuf::Message& message);

void PrintJson(const nlohmann::ordered_json& json);

// "<CODE>: <message>", or the object of --json.
void PrintError(const absl::Status& status, bool json);

// "%.9g", and 1 instead of 1.0000.
std::string NumberText(double value);

// "41.9 MB".
std::string BytesText(double bytes);

}  // namespace posenc::cli
