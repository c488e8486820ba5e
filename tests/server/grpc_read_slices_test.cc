// What connections at rest keep in memory, of a posencd that is linked with
// gRPC's archives.

#include <cstddef>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "tests/fixtures/posencd.h"
#include "tests/fixtures/server.h"

namespace posenc::server {
namespace {

// The heap's and the program's memory of a process, without its files' pages.
double ResidentMiB(pid_t process) {
  std::ifstream status("/proc/" + std::to_string(process) + "/status");
  std::string line;
  while (std::getline(status, line)) {
    if (line.rfind("RssAnon:", 0) == 0) return std::stod(line.substr(8)) / 1024;
  }
  return 0;
}

using GrpcReadSlicesTest = BinaryTest;

// gRPC's own loop leaves 0.75 MiB on average, up to 4.
TEST_F(GrpcReadSlicesTest, AConnectionAtRestKeepsAThirdOfAMiBAtMost) {
  constexpr int kConnections = 48;
  constexpr int kFloats = 4 << 20;
  Process process(
      {"--listen", "unix:" + socket(), "--ready-file", ready_file()});
  const std::vector<std::string> addresses = AwaitReady();
  ASSERT_EQ(addresses.size(), 1u);
  v1::ApplyRopeRequest request;
  SetTensor(v1::DTYPE_FLOAT32, {1, kFloats / 64, 1, 64},
            std::vector<float>(kFloats), request.mutable_q());
  request.set_layout(v1::LAYOUT_BSHD);
  v1::RopeSpec* const spec = request.mutable_rope()->mutable_spec();
  spec->set_pairing(v1::PAIRING_HALF_SPLIT);
  spec->set_rotary_dim(64);
  request.mutable_positions()->set_start(0);
  std::vector<std::shared_ptr<grpc::Channel>> channels;
  double first = 0;
  for (int i = 0; i < kConnections; ++i) {
    channels.push_back(Connect(addresses[0]));
    const auto stub = v1::PositionalEncodingService::NewStub(channels.back());
    grpc::ClientContext context;
    context.set_deadline(Deadline());
    v1::ApplyRopeResponse response;
    const grpc::Status status = stub->ApplyRope(&context, request, &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
    // The heap has grown by what a call takes.
    if (i == 0) first = ResidentMiB(process.pid());
  }
  ASSERT_GT(first, 0);
  EXPECT_LT(ResidentMiB(process.pid()) - first, kConnections / 3.0);
}

}  // namespace
}  // namespace posenc::server
