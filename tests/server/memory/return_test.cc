// A server returns the memory of every burst to the kernel.

#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/config.h"
#include "grpcpp/client_context.h"
#include "gtest/gtest.h"
#include "posenc/v1/service.grpc.pb.h"
#include "server/memory/heap.h"
#include "server/service/server.h"
#include "tests/fixtures/eventually.h"
#include "tests/fixtures/server.h"

namespace posenc::server {
namespace {

constexpr std::size_t kTensorBytes = 16 << 20;
constexpr int kCalls = 8;
// Returns whether the server's resident memory falls below `bytes`. Only every
// tenth call returns memory, and calls of a burst end on the server shortly
// after their clients have the answers.
bool FallsBelow(std::size_t bytes, Server* server) {
  return test::Eventually([bytes, server] {
    server->EverySecond();
    return ResidentMemory() < bytes;
  });
}

grpc::Status Rotate(const std::shared_ptr<grpc::Channel>& channel) {
  v1::ApplyRopeRequest request;
  request.mutable_rope()->set_preset("llama-2-7b");
  request.set_layout(v1::LAYOUT_BSHD);
  request.mutable_positions()->set_start(0);
  v1::Tensor* const q = request.mutable_q();
  q->set_dtype(v1::DTYPE_FLOAT32);
  constexpr std::int64_t kRow = std::int64_t{32} * 128 * sizeof(float);
  for (const std::int64_t extent :
       {std::int64_t{1}, static_cast<std::int64_t>(kTensorBytes) / kRow,
        std::int64_t{32}, std::int64_t{128}}) {
    q->add_shape(extent);
  }
  q->mutable_data()->resize(kTensorBytes);
  v1::ApplyRopeResponse response;
  grpc::ClientContext context;
  context.set_deadline(Deadline());
  return v1::PositionalEncodingService::NewStub(channel)->ApplyRope(
      &context, request, &response);
}

TEST(ReturnedMemoryTest, EveryBurstsMemoryIsReturned) {
#ifdef ABSL_HAVE_ADDRESS_SANITIZER
  GTEST_SKIP() << "its allocator keeps 256 MB of what was freed, to watch it";
#endif
#ifdef ABSL_HAVE_THREAD_SANITIZER
  GTEST_SKIP() << "what it notes of each byte is resident, and stays";
#endif
  KeepFreedMemory();
  ServerOptions options;
  options.listen = {"127.0.0.1:0"};
  auto server = Server::Start(options);
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string address = (*server)->addresses()[0];
  const std::size_t at_start = ResidentMemory();
  ASSERT_TRUE(Rotate(Connect(address)).ok());
  ASSERT_TRUE(FallsBelow(at_start + kTensorBytes, server->get()))
      << ResidentMemory() << " of " << at_start;
  const std::size_t base = ResidentMemory();
  for (int burst = 0; burst < 3; ++burst) {
    // The clients are in this process, and gRPC's client keeps the last bytes
    // that it read, up to a whole response, until its connection reads again or
    // ends. So each burst has its own connection.
    auto channel = Connect(address);
    std::vector<std::future<grpc::Status>> calls;
    for (int i = 0; i < kCalls; ++i) {
      calls.push_back(std::async(std::launch::async, Rotate, channel));
    }
    for (auto& call : calls) {
      const grpc::Status status = call.get();
      EXPECT_TRUE(status.ok()) << status.error_message();
    }
    calls.clear();
    channel.reset();
    EXPECT_GT(ResidentMemory(), base + 6 * kTensorBytes)
        << "the burst left nothing to return";
    EXPECT_TRUE(FallsBelow(base + 2 * kTensorBytes, server->get()))
        << "burst " << burst << ": " << ResidentMemory() << " of " << base;
  }
}

}  // namespace
}  // namespace posenc::server
