#include "tests/conformance/stand_in.h"

#include <csignal>
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>

#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"

namespace posenc::conformance {

int ServeUntilTerminated(int argc, char** argv, grpc::Service* service) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s READY_FILE\n", argv[0]);
    return 2;
  }
  sigset_t end;
  sigemptyset(&end);
  sigaddset(&end, SIGTERM);
  sigaddset(&end, SIGINT);
  // This must precede gRPC's threads, which inherit the mask.
  sigprocmask(SIG_BLOCK, &end, nullptr);
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                           &port);
  builder.RegisterService(service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) return 1;
  // Renames a finished file, because the reader may read as soon as the name
  // exists.
  const std::string ready = argv[1], fresh = ready + ".new";
  std::ofstream(fresh) << "127.0.0.1:" << port << "\n";
  if (std::rename(fresh.c_str(), ready.c_str()) != 0) return 1;
  int signal = 0;
  sigwait(&end, &signal);
  server->Shutdown();
  return 0;
}

}  // namespace posenc::conformance
