// gRPC makes no error of a status that is sent, and all others. What it makes
// is seen by the time, which is written into every error: by this program's
// functions, since what a program defines comes before what its shared
// libraries define.

#include <atomic>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "server/server.h"
#include "tests/fixtures/http2.h"
#include "tests/fixtures/posencd.h"

namespace {
std::atomic<int> times_written = 0, times_read = 0;
}

namespace absl {
ABSL_NAMESPACE_BEGIN

std::string FormatTime(absl::string_view, Time, TimeZone) {
  ++times_written;
  return "a time";
}

bool ParseTime(absl::string_view, absl::string_view, Time*, std::string*) {
  ++times_read;
  return false;
}

ABSL_NAMESPACE_END
}  // namespace absl

namespace grpc_core {

// As gRPC 1.51 has it, whose members are private.
class DebugLocation {
 public:
  const char* file = "";
  int line = -1;
};

absl::Status StatusCreate(absl::StatusCode code, absl::string_view message,
                          const DebugLocation& location,
                          std::vector<absl::Status> children);
std::string StatusToString(const absl::Status& status);

}  // namespace grpc_core

namespace posenc::server {
namespace {

using PosencdTest = BinaryTest;

TEST_F(PosencdTest, HasGrpcWithinAndNoSecondOneBeside) {
  Process server(
      {"--listen", "unix:" + socket(), "--ready-file", ready_file()});
  ASSERT_EQ(AwaitReady().size(), 1u);
  std::ifstream file("/proc/" + std::to_string(server.pid()) + "/maps");
  const std::string maps(std::istreambuf_iterator<char>(file), {});
  EXPECT_EQ(maps.find("/libgrpc"), std::string::npos) << maps;
  EXPECT_NE(maps.find("/libabsl_time."), std::string::npos) << maps;
}

TEST(GrpcShortcutsTest, OtherErrorsAreThoseOfGrpc) {
  const int written = times_written, read = times_read;
  const absl::Status status =
      grpc_core::StatusCreate(absl::StatusCode::kUnknown, "an error", {},
                              {absl::DataLossError("a cause")});
  EXPECT_EQ(status.message(), "an error");
  EXPECT_EQ(times_written, written + 1);
  const std::string text = grpc_core::StatusToString(status);
  EXPECT_NE(text.find("an error"), std::string::npos) << text;
  EXPECT_NE(text.find("a cause"), std::string::npos) << text;
  EXPECT_EQ(times_read, read + 1);
  EXPECT_EQ(grpc_core::StatusToString(absl::OkStatus()), "OK");
}

TEST(GrpcShortcutsTest, AStatusThatIsSentIsNoErrorOfGrpc) {
  constexpr int kCalls = 100;
  ServerOptions options;
  options.listen = {"127.0.0.1:0"};
  absl::StatusOr<std::unique_ptr<Server>> server = Server::Start(options);
  ASSERT_TRUE(server.ok()) << server.status();
  const int written = times_written, read = times_read;
  {
    http2::Socket peer((*server)->addresses()[0]);
    peer.Send(http2::kPreface + http2::kSettings);
    for (int i = 0; i < kCalls; ++i) {
      const auto stream = static_cast<std::uint32_t>(2 * i + 1);
      peer.Send(http2::CallHeaders("/posenc.v1.Nothing", stream) +
                http2::Frame(0, 1, stream, std::string(5, '\0')));
      ASSERT_TRUE(peer.AwaitFrame(1)) << "the call's status";
    }
  }
  server->reset();
  // A few are of the connection.
  EXPECT_LT(times_written - written, kCalls / 2);
  EXPECT_LT(times_read - read, kCalls / 2);
}

}  // namespace
}  // namespace posenc::server
