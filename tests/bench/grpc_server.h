// A gRPC server of the benchmark, on a Unix socket and a free port.

#pragma once

#include <climits>
#include <memory>
#include <string>

#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "tests/bench/ready_file.h"

namespace posenc {

// Serves until the process is killed. add(builder) registers the service, and
// run() is called once the server has started. Returns an exit code.
template <typename Add, typename Run>
int Serve(const std::string& path, const std::string& ready, const Add& add,
          const Run& run) {
  grpc::ServerBuilder builder;
  int port = 0;
  builder.SetMaxReceiveMessageSize(INT_MAX).SetMaxSendMessageSize(INT_MAX);
  add(&builder);
  const auto plaintext = grpc::InsecureServerCredentials();
  builder.AddListeningPort("127.0.0.1:0", plaintext, &port);
  builder.AddListeningPort("unix:" + path, plaintext);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr ||
      !WriteReadyFile(ready,
                      {"127.0.0.1:" + std::to_string(port), "unix:" + path})) {
    return 1;
  }
  run();
  server->Wait();
  return 0;
}

template <typename Add>
int Serve(const std::string& path, const std::string& ready, const Add& add) {
  return Serve(path, ready, add, [] {});
}

}  // namespace posenc
