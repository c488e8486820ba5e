// posenc-old-server READY_FILE: a server of version 0.0.9, which has nothing
// but GetServerInfo. The table of errors asks how clients explain that.
//
// Listens on a free loopback port, writes the address into READY_FILE, and ends
// with SIGTERM.

#include <csignal>
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>

#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "posenc/v1/service.grpc.pb.h"

namespace {

// The generated methods answer UNIMPLEMENTED unless they are overridden.
class OldService final : public posenc::v1::PositionalEncodingService::Service {
  grpc::Status GetServerInfo(
      grpc::ServerContext*, const posenc::v1::GetServerInfoRequest*,
      posenc::v1::GetServerInfoResponse* response) override {
    response->set_version("0.0.9");
    return grpc::Status::OK;
  }
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: posenc-old-server READY_FILE\n");
    return 2;
  }
  sigset_t end;
  sigemptyset(&end);
  sigaddset(&end, SIGTERM);
  sigaddset(&end, SIGINT);
  // Before gRPC makes threads, which inherit it.
  sigprocmask(SIG_BLOCK, &end, nullptr);
  OldService service;
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                           &port);
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) return 1;
  // Whole or not at all: the reader waits for the name to appear.
  const std::string ready = argv[1], fresh = ready + ".new";
  std::ofstream(fresh) << "127.0.0.1:" << port << "\n";
  if (std::rename(fresh.c_str(), ready.c_str()) != 0) return 1;
  int signal = 0;
  sigwait(&end, &signal);
  server->Shutdown();
  return 0;
}
