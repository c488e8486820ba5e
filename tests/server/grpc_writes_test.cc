// What the server writes is counted by this program's sendmsg(), since what a
// program defines comes before what its shared libraries define. The peers of
// these tests write by send().

#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "server/rpc/held_writes.h"
#include "server/server.h"
#include "tests/fixtures/http2.h"

namespace {
std::atomic<int> writes = 0;
}

extern "C" ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  ++writes;
  return syscall(SYS_sendmsg, fd, message, flags);
}

namespace posenc::server {
namespace {

std::string Call(int number) {
  const auto stream = static_cast<std::uint32_t>(2 * number + 1);
  return http2::CallHeaders("/grpc.health.v1.Health/Check", stream) +
         http2::Frame(0, 1, stream, std::string(5, '\0'));
}

class GrpcWritesTest : public testing::Test {
 protected:
  GrpcWritesTest() {
    ServerOptions options;
    options.listen = {"127.0.0.1:0"};
    options.limits.threads = 1;
    server_ = Server::Start(options);
    EXPECT_TRUE(server_.ok()) << server_.status();
    peer_.emplace((*server_)->addresses()[0]);
    peer_->Send(http2::kPreface + http2::kSettings);
  }

  absl::StatusOr<std::unique_ptr<Server>> server_;
  std::optional<http2::Socket> peer_;
};

TEST_F(GrpcWritesTest, AnswersOfABurstShareWrites) {
  constexpr int kCalls = 64;
  peer_->Send(Call(0));
  ASSERT_TRUE(peer_->AwaitFrame(0)) << "the answer to a call alone";
  ASSERT_TRUE(peer_->AwaitFrame(1)) << "its status";
  std::string burst;
  for (int i = 1; i <= kCalls; ++i) burst += Call(i);
  const int before = writes;
  peer_->Send(burst);
  for (int i = 0; i < kCalls; ++i) ASSERT_TRUE(peer_->AwaitFrame(0)) << i;
  EXPECT_LT(writes - before, kCalls / 2);
}

TEST_F(GrpcWritesTest, CallsOneByOneAreAnsweredAtOnce) {
  for (int i = 0; i < 100; ++i) {
    peer_->Send(Call(i));
    ASSERT_TRUE(peer_->AwaitFrame(0)) << i;
  }
}

TEST(HeldWritesTest, HoldsAllButTheFirstUntilTheyAreReleased) {
  HeldWrites writes;
  int written = 0;
  {
    const HeldWrites::Allowed allowed(true);
    EXPECT_EQ(HeldWrites::ForNext(), nullptr);
    EXPECT_TRUE(writes.begun());
    EXPECT_EQ(HeldWrites::ForNext(), nullptr) << "within the first";
  }
  {
    const HeldWrites::Allowed allowed(true);
    ASSERT_EQ(HeldWrites::ForNext(), &writes);
    writes.Hold([&] { ++written; });
  }
  EXPECT_EQ(HeldWrites::ForNext(), nullptr) << "outside";
  EXPECT_EQ(written, 0);
  writes.Release();
  EXPECT_EQ(written, 1);
  EXPECT_FALSE(writes.begun());
  writes.Release();
  EXPECT_EQ(written, 1);
}

TEST(HeldWritesTest, HoldsNothingOfOtherThreads) {
  HeldWrites writes;
  std::thread([] {
    const HeldWrites::Allowed allowed(true);
    for (int i = 0; i < 2; ++i) EXPECT_EQ(HeldWrites::ForNext(), nullptr);
  }).join();
  EXPECT_FALSE(writes.begun());
}

TEST(HeldWritesTest, HoldsNothingThatIsNotAllowed) {
  HeldWrites writes;
  const HeldWrites::Allowed allowed(false);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(HeldWrites::ForNext(), nullptr);
  EXPECT_FALSE(writes.begun());
}

}  // namespace
}  // namespace posenc::server
