// posenc-old-server READY_FILE: a server of version 0.0.9, which only has
// GetServerInfo. The table of errors tests the clients' errors at such a
// server.

#include "posenc/v1/service.grpc.pb.h"
#include "tests/conformance/stand_in.h"

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
  OldService service;
  return posenc::conformance::ServeUntilTerminated(argc, argv, &service);
}
