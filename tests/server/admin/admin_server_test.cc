// The admin server over sockets, with stalled and normal peers.

#include "server/admin/admin_server.h"

#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/config.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "tests/fixtures/directory.h"
#include "tests/fixtures/http2.h"

namespace posenc::server {
namespace {

using http2::Socket;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr char kHealth[] = "GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";

// Returns a peer with a small window, which a few KiB fill.
Socket NewPeer(int family = AF_INET) {
  Socket peer = Socket::NotConnected(family);
  const int bytes = 1024;
  setsockopt(peer.fd(), SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
  return peer;
}

class AdminServerTest : public testing::Test {
 protected:
  void Start(const std::string& address = "127.0.0.1:0") {
    auto server = AdminServer::Start(
        {.address = address, .timeout_seconds = timeout_seconds_},
        {.metrics = [this] { return metrics_; },
         .config = [] { return std::string("a = 1\n"); },
         .ready = [this] { return ready_.load(); }});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  Socket Connect() {
    Socket peer =
        NewPeer(server_->address().starts_with("unix:") ? AF_UNIX : AF_INET);
    peer.ConnectTo(server_->address());
    return peer;
  }
  std::string Ask(const std::string& text) { return Connect().Ask(text); }
  std::string AskFromElsewhere() {
    return Socket(server_->address(), 1).Ask(kHealth);
  }

  unsigned timeout_seconds_ = 30;
  std::string metrics_ = "a 1\n";
  std::atomic<bool> ready_{true};
  std::unique_ptr<AdminServer> server_;
};

TEST_F(AdminServerTest, AnswersAtTheReportedAddress) {
  Start();
  EXPECT_THAT(server_->address(), StartsWith("127.0.0.1:"));
  EXPECT_THAT(Ask(kHealth), StartsWith("HTTP/1.1 200 OK\r\n"));
}

// The peer connects to 127.0.0.1, even if "localhost" resolves to ::1 first.
TEST_F(AdminServerTest, AnswersAtEveryAddressOfItsHost) {
  Start("localhost:0");
  EXPECT_THAT(Ask(kHealth), StartsWith("HTTP/1.1 200 OK\r\n"));
}

TEST_F(AdminServerTest, AnswersOnAUnixSocketAndRemovesIt) {
  const test::Directory directory;
  const std::string path = directory.Path("admin.sock");
  Start("unix:" + path);
  EXPECT_EQ(server_->address(), "unix:" + path);
  EXPECT_THAT(Ask(kHealth), StartsWith("HTTP/1.1 200 OK\r\n"));
  server_.reset();
  EXPECT_NE(access(path.c_str(), F_OK), 0);
}

TEST_F(AdminServerTest, ARequestMayComeInPieces) {
  Start();
  Socket peer = Connect();
  for (const char c : std::string(kHealth)) peer.Send(std::string(1, c));
  EXPECT_THAT(peer.ReadAll(), StartsWith("HTTP/1.1 200 OK\r\n"));
}

TEST_F(AdminServerTest, EndsOtherProtocols) {
  timeout_seconds_ = 1;
  Start();
  EXPECT_THAT(Ask("\x16\x03\x01\x02\x01"), Not(StartsWith("HTTP/1.1 200")));
  EXPECT_THAT(Ask("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
              Not(StartsWith("HTTP/1.1 200")));
}

TEST_F(AdminServerTest, HeadHasNoBody) {
  Start();
  const std::string response =
      Ask("HEAD /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
  EXPECT_THAT(response, HasSubstr("Content-Length: 4\r\n"));
  EXPECT_THAT(response, HasSubstr("Connection: close\r\n"));
  EXPECT_THAT(response, EndsWith("\r\n\r\n"));
}

TEST_F(AdminServerTest, EscapesInAPathAreNotResolved) {
  Start();
  EXPECT_THAT(Ask("GET /metrics%00 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"),
              StartsWith("HTTP/1.1 404 "));
}

// A response with all these ranges would have the page a thousand times.
TEST_F(AdminServerTest, RangesAreIgnored) {
  metrics_ = std::string(100000, 'x');
  Start();
  std::string ranges = "bytes=0-";
  while (ranges.size() < 4000) ranges += ",0-";
  const std::string response = Ask(absl::StrCat(
      "GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nRange: ", ranges,
      "\r\n\r\n"));
  EXPECT_THAT(response, StartsWith("HTTP/1.1 200 "));
  EXPECT_LT(response.size(), metrics_.size() + 1000);
}

TEST_F(AdminServerTest, EndsRequestsThatAreTooLong) {
  Start();
  EXPECT_THAT(Ask("GET /" + std::string(100000, 'a')),
              StartsWith("HTTP/1.1 4"));
  EXPECT_THAT(Ask("GET / HTTP/1.1\r\na: " + std::string(100000, 'a')),
              StartsWith("HTTP/1.1 431 "));
}

TEST_F(AdminServerTest, DoesNotWaitForABody) {
  Start();
  EXPECT_THAT(Ask("POST /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                  "Content-Length: 1000000\r\n\r\n"),
              StartsWith("HTTP/1.1 405 "));
}

TEST_F(AdminServerTest, HalfOpenConnectionsDoNotBlockOtherAddresses) {
  Start();
  std::vector<Socket> stalled;
  for (int i = 0; i < 400; ++i) {
    stalled.push_back(Connect());
    if (i % 2 == 0) stalled.back().Send("GET /healthz HTTP/1.1\r\nHo");
    if (i % 100 == 99) {
      EXPECT_THAT(AskFromElsewhere(), StartsWith("HTTP/1.1 200 OK\r\n"));
    }
  }
  EXPECT_EQ(Ask(kHealth), "");
}

TEST_F(AdminServerTest, ScrapersThatNeverReadDoNotBlockOtherAddresses) {
  metrics_ = std::string(8 << 20, 'x');
  Start();
  std::vector<Socket> deaf;
  for (int i = 0; i < 80; ++i) {
    deaf.push_back(Connect());
    deaf.back().Send("GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
  }
  EXPECT_THAT(AskFromElsewhere(), StartsWith("HTTP/1.1 200 OK\r\n"));
}

TEST_F(AdminServerTest, EndsPeersThatStall) {
  timeout_seconds_ = 1;
  metrics_ = std::string(8 << 20, 'x');
  Start();
  Socket silent = Connect();
  Socket deaf = Connect();
  deaf.Send("GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
  EXPECT_EQ(silent.ReadAll(), "");
  // The time limit of `deaf` begins when the buffers are full. A second silent
  // peer connects later, so the server has already ended `deaf` when it ends
  // this peer.
  EXPECT_EQ(Connect().ReadAll(), "");
  // The peer gets only the bytes that arrived before the server ended the
  // connection.
  EXPECT_LT(deaf.ReadAll().size(), metrics_.size());
}

TEST_F(AdminServerTest, ASlowReaderGetsTheWholePage) {
  metrics_ = std::string(1 << 20, 'x');
  Start();
  Socket peer = Connect();
  peer.Send("GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
  // The server answers another peer in this time.
  EXPECT_THAT(Ask(kHealth), StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_GT(peer.ReadAll().size(), metrics_.size());
}

TEST_F(AdminServerTest, AnswersOnceADescriptorIsFree) {
#ifdef ABSL_HAVE_ADDRESS_SANITIZER
  GTEST_SKIP() << "the sanitizer's check of an object's class needs one";
#endif
  Start();
  Socket first = NewPeer(), second = NewPeer();
  rlimit before = {};
  getrlimit(RLIMIT_NOFILE, &before);
  const rlimit low = {.rlim_cur = 64, .rlim_max = before.rlim_max};
  setrlimit(RLIMIT_NOFILE, &low);
  std::vector<int> taken;
  for (int fd = dup(0); fd >= 0; fd = dup(0)) taken.push_back(fd);
  first.ConnectTo(server_->address());
  first.Send(kHealth);
  pollfd waiting = {first.fd(), POLLIN, 0};
  EXPECT_EQ(poll(&waiting, 1, 100), 0);
  for (const int fd : taken) close(fd);
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_THAT(first.ReadAll(), StartsWith("HTTP/1.1 200 OK\r\n"));
  second.ConnectTo(server_->address());
  EXPECT_THAT(second.Ask(kHealth), StartsWith("HTTP/1.1 200 OK\r\n"));
}

TEST(AdminServer, NamesItsFlagInErrors) {
  const auto start = [](const std::string& address) {
    return AdminServer::Start({.address = address}, {}).status();
  };
  const absl::Status bad = start("9090");
  EXPECT_EQ(bad.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(bad.message()), StartsWith("--admin: 9090: "));
  const absl::Status missing = start("unix:/nonexistent/admin.sock");
  EXPECT_EQ(missing.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(missing.message()),
              StartsWith("--admin: cannot listen on unix:/nonexistent"));
}

TEST_F(AdminServerTest, TwoServersDoNotShareAnAddress) {
  Start();
  const absl::Status taken =
      AdminServer::Start({.address = server_->address()}, {}).status();
  EXPECT_EQ(taken.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(taken.message()),
              HasSubstr("Address already in use"));
}

}  // namespace
}  // namespace posenc::server
