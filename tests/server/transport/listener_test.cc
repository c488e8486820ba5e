// Connections without calls, too many connections, and too few descriptors.

#include "server/transport/listener.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "tests/fixtures/directory.h"
#include "tests/fixtures/http2.h"
#include "tests/fixtures/server.h"

namespace posenc::server {
namespace {

using http2::CallHeaders;
using http2::Frame;
using http2::kPreface;
using http2::kSettings;
using http2::Socket;
using test::Eventually;
using testing::AnyOf;
using testing::HasSubstr;

constexpr char kCheck[] = "/grpc.health.v1.Health/Check";
constexpr char kWatch[] = "/grpc.health.v1.Health/Watch";
constexpr char kTable[] = "/posenc.v1.PositionalEncodingService/BuildTable";
constexpr char kInfo[] = "/posenc.v1.PositionalEncodingService/GetServerInfo";

// Limits that a test does not examine must not end its connections.
constexpr absl::Duration kLong = absl::Minutes(5);
constexpr absl::Duration kShort = absl::Milliseconds(100);

ServerOptions Patient() {
  ServerOptions options;
  options.listen = {"127.0.0.1:0"};
  options.connections.handshake_timeout = kLong;
  options.connections.max_connection_idle = kLong;
  return options;
}

// Returns calls that begin at once in one connection, and then stall.
std::string StalledCalls(int count) {
  std::string calls = kPreface + kSettings;
  for (int i = 0; i < count; ++i) calls += CallHeaders(kTable, 2 * i + 1);
  return calls;
}

// Sends `calls`, and returns how many of them gRPC refused because of its limit
// for a connection, or -1 if the connection has ended. gRPC 1.51 refuses none;
// gRPC 1.83 answers a ping first, so that only the second answer comes after
// the refusals.
int Refused(const std::string& calls, Socket* socket) {
  constexpr std::uint8_t kReset = 3, kPing = 6;
  const std::string ping = Frame(kPing, 0, 0, std::string(8, 'p'));
  socket->Send(calls + ping);
  int refused = 0;
  for (int answers = 0; answers < 2;) {
    const std::string frame = socket->ReadFrame();
    if (frame.empty()) return -1;
    const auto type = static_cast<std::uint8_t>(frame[3]);
    if (type == kReset) ++refused;
    if (type == kPing && frame[4] == 1 && ++answers == 1) socket->Send(ping);
  }
  return refused;
}

class ListenerTest : public ServerTest {
 protected:
  void SetUp() override {}
  // These tests count the server's connections.
  void Start(const ServerOptions& options) { StartServer(options); }

  const std::string& address() const { return server_->addresses()[0]; }

  std::int64_t Ended(Ending ending) const {
    const auto endings = server_->Status().connections_refused;
    return endings[static_cast<std::size_t>(ending)].second;
  }
  std::int64_t Open() const { return server_->Status().connections; }

  bool Serves(const std::shared_ptr<grpc::Channel>& channel) const {
    std::string response;
    return RawUnary(channel, kInfo, "", &response).ok();
  }
  bool Serves() const { return Serves(Connect(address())); }

  // Returns a connection that has made a call and got its answer. If a short
  // limit ends the connection before that, which may happen on a busy machine,
  // makes another connection.
  Socket Caller(const std::string& method = kCheck) const {
    std::optional<Socket> socket;
    EXPECT_TRUE(Eventually([&] {
      socket.emplace(address());
      socket->Send(kPreface + kSettings + CallHeaders(method, 1) +
                   http2::LastMessage(1, ""));
      return socket->AwaitFrame(0);
    }));
    return *std::move(socket);
  }

  // Starts a call that stays open, and keeps its connection.
  std::unique_ptr<RawCall> Watch() const {
    std::unique_ptr<RawCall> watch;
    std::string health;
    EXPECT_TRUE(Eventually([&] {
      watch = std::make_unique<RawCall>(channel_, kWatch);
      watch->WriteLast("");
      return watch->Read(&health);
    }));
    return watch;
  }
};

TEST_F(ListenerTest, ASilentConnectionIsEndedInTime) {
  ServerOptions options = Patient();
  options.connections.handshake_timeout = kShort;
  Start(options);
  Socket silent(address()), half(address());
  half.Send(kPreface.substr(0, 12));
  EXPECT_TRUE(silent.AwaitEnd());
  EXPECT_TRUE(half.AwaitEnd());
  // On a busy machine the limit may end other connections, too.
  EXPECT_TRUE(Eventually([this] { return Serves(); }));
}

TEST_F(ListenerTest, HalfHeadersAreEndedByTheConnectionsAge) {
  ServerOptions options = Patient();
  options.max_connection_age = kShort;
  options.max_connection_age_grace = kShort;
  Start(options);
  const std::string headers = CallHeaders(kCheck, 1);
  Socket cut(address()), without_end(address());
  cut.Send(kPreface + kSettings + headers.substr(0, headers.size() - 1));
  without_end.Send(kPreface + kSettings + Frame(1, 0, 1, headers.substr(9)));
  EXPECT_TRUE(cut.AwaitEnd());
  EXPECT_TRUE(without_end.AwaitEnd());
}

TEST_F(ListenerTest, AConnectionWithoutACallIsToldToGoInTime) {
  ServerOptions options = Patient();
  options.connections.max_connection_idle = kShort;
  Start(options);
  Socket idle(address());
  idle.Send(kPreface + kSettings);
  EXPECT_TRUE(idle.AwaitFrame(4));  // settings
  EXPECT_TRUE(idle.AwaitFrame(7));  // GOAWAY
  EXPECT_TRUE(idle.AwaitEnd());
}

TEST_F(ListenerTest, AConnectionThatOnlyPingsIsToldToGoInTime) {
  ServerOptions options = Patient();
  options.connections.max_connection_idle = kShort;
  Start(options);
  Socket socket(address());
  socket.Send(kPreface + kSettings + Frame(6, 0, 0, "12345678"));
  EXPECT_TRUE(socket.AwaitFrame(6));
  EXPECT_TRUE(socket.AwaitEnd());
}

TEST_F(ListenerTest, APeerThatPingsTooOftenIsToldToGo) {
  std::string pings;
  for (int i = 0; i < 8; ++i) pings += Frame(6, 0, 0, "12345678");
  for (const bool too_often : {true, false}) {
    ServerOptions options = Patient();
    options.connections.keepalive_min_interval =
        too_often ? kLong : absl::ZeroDuration();
    Start(options);
    Socket socket(address());
    socket.Send(kPreface + kSettings + pings);
    int answers = 0;
    std::string frame;
    while ((too_often || answers < 8) &&
           !(frame = socket.ReadFrame()).empty()) {
      if (frame[3] == 6) ++answers;
      if (frame[3] == 7) break;  // GOAWAY
    }
    EXPECT_EQ(frame.ends_with("too_many_pings"), too_often);
  }
}

TEST_F(ListenerTest, OtherProtocolsAreEnded) {
  Start(Patient());
  Socket http(address());
  http.Send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_TRUE(http.AwaitEnd());
}

TEST_F(ListenerTest, TheSameHoldsOnAUnixSocket) {
  const test::Directory directory;
  ServerOptions options = Patient();
  options.listen = {"unix:" + directory.Path("s")};
  options.connections.handshake_timeout = kShort;
  options.connections.max_connection_idle = kShort;
  Start(options);
  const std::unique_ptr<RawCall> watch = Watch();
  Socket silent(address()), half(address()), idle(address());
  half.Send(kPreface.substr(0, 12));
  idle.Send(kPreface + kSettings);
  EXPECT_TRUE(silent.AwaitEnd());
  EXPECT_TRUE(half.AwaitEnd());
  EXPECT_TRUE(idle.AwaitEnd());
  EXPECT_TRUE(Serves(channel_));
}

// A volume with an fsGroup gives its files its group. Containers that share it
// may have different users.
TEST_F(ListenerTest, ADirectorysGroupMayConnectIfItGivesItsFilesItsGroup) {
  for (const mode_t mode : {0700, 02770}) {
    const test::Directory directory;
    ASSERT_EQ(chmod(directory.path().c_str(), mode), 0);
    const std::string path = directory.Path("s");
    ServerOptions options = Patient();
    options.listen = {"unix:" + path};
    const mode_t before = umask(022);
    Start(options);
    umask(before);
    struct stat socket = {};
    ASSERT_EQ(stat(path.c_str(), &socket), 0);
    EXPECT_EQ(socket.st_mode & 0777, mode == 0700 ? 0755u : 0775u);
    EXPECT_TRUE(Serves(channel_));
    server_.reset();
  }
}

TEST_F(ListenerTest, AConnectionWithACallInProgressIsNotIdle) {
  ServerOptions options = Patient();
  options.connections.max_connection_idle = kShort;
  Start(options);
  Socket busy(address()), idle(address());
  busy.Send(StalledCalls(1));
  idle.Send(kPreface + kSettings);
  ASSERT_TRUE(idle.AwaitEnd());
  EXPECT_FALSE(busy.Ended());
  EXPECT_EQ(server_->Status().calls_in_progress, 1);
}

TEST_F(ListenerTest, AtTheCapANewcomerIsEnded) {
  ServerOptions options = Patient();
  options.connections.max_connections = 2;
  Start(options);
  Socket first = Caller();
  std::vector<Socket> second;
  second.push_back(Caller());
  Socket late(address());
  EXPECT_TRUE(late.AwaitEnd());
  EXPECT_EQ(Ended(Ending::kAtCap), 1);
  second.clear();
  // gRPC closes the server's socket when it sees the end of the connection.
  EXPECT_TRUE(Eventually([this] { return Serves(); }));
  EXPECT_FALSE(first.Ended());
}

TEST_F(ListenerTest, AHostAtItsCapTakesNothingFromOthers) {
  ServerOptions options = Patient();
  options.connections.max_connections_per_peer = 2;
  Start(options);
  std::vector<Socket> many;
  for (int i = 0; i < 4; ++i) {
    many.emplace_back(address(), 2);
    many.back().Send(kPreface + kSettings);
  }
  EXPECT_TRUE(many[0].AwaitFrame(4));
  EXPECT_TRUE(many[1].AwaitFrame(4));
  EXPECT_TRUE(many[2].AwaitEnd());
  EXPECT_TRUE(many[3].AwaitEnd());
  EXPECT_EQ(Ended(Ending::kAtCap), 2);
  Socket other(address(), 1);
  other.Send(kPreface + kSettings);
  EXPECT_TRUE(other.AwaitFrame(4));
  EXPECT_FALSE(many[0].Ended());
  EXPECT_FALSE(many[1].Ended());
  // Closed connections of the host make room for new ones.
  many.clear();
  EXPECT_TRUE(Eventually([this] {
    Socket again(address(), 2);
    again.Send(kPreface + kSettings);
    return again.AwaitFrame(4);
  }));
}

TEST_F(ListenerTest, NewCapsHoldForNewcomers) {
  Start(Patient());
  Socket first = Caller(), second = Caller();
  ServerOptions options = Patient();
  options.connections.max_connections = 1;
  EXPECT_EQ(server_->Reload(options), absl::OkStatus());
  Socket late(address());
  EXPECT_TRUE(late.AwaitEnd());
  EXPECT_FALSE(first.Ended());
  EXPECT_FALSE(second.Ended());
}

TEST_F(ListenerTest, ClosedConnectionsAreForgotten) {
  Start(Patient());
  std::vector<Socket> callers;
  callers.reserve(8);
  for (int i = 0; i < 8; ++i) callers.push_back(Caller());
  EXPECT_EQ(Open(), 8);
  callers.clear();
  EXPECT_TRUE(Eventually([this] { return Open() == 0; }));
}

// The end of the connection frees the peer's memory and its call, as over TCP.
TEST_F(ListenerTest, AFrozenPeerOfAUnixSocketIsCutOff) {
  const test::Directory directory;
  ServerOptions options = Patient();
  options.listen = {"unix:" + directory.Path("s")};
  options.connections.keepalive_timeout = kShort;
  Start(options);
  Socket frozen(address());
  frozen.Send(http2::kOpenWindows + CallHeaders(kTable, 1) +
              http2::LastMessage(1, LargeTable().SerializeAsString()));
  EXPECT_TRUE(Eventually([this] { return Ended(Ending::kNotReading) == 1; }));
  ExpectNothingInFlight();
  EXPECT_TRUE(
      Eventually([this] { return server_->Status().calls_in_progress == 0; }));
  EXPECT_TRUE(Eventually([this] { return Serves(); }));
}

TEST_F(ListenerTest, ClientsSeeTheStreamLimitBeforeTheirFirstCall) {
  ServerOptions options = Patient();
  options.connections.max_concurrent_streams = 3;
  Start(options);
  Socket socket(address());
  socket.Send(kPreface + kSettings);
  // SETTINGS_MAX_CONCURRENT_STREAMS is 3.
  EXPECT_THAT(socket.ReadFrame(), HasSubstr(std::string("\0\3\0\0\0\3", 6)));
  // Further calls on the connection wait until one of these ends.
  std::vector<std::unique_ptr<RawCall>> watches;
  for (int i = 0; i < 3; ++i) {
    watches.push_back(std::make_unique<RawCall>(channel_, kWatch));
    watches.back()->WriteLast("");
    std::string health;
    EXPECT_TRUE(watches.back()->Read(&health));
  }
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() +
                       std::chrono::milliseconds(50));
  v1::GetServerInfoResponse info;
  EXPECT_EQ(stub_->GetServerInfo(&context, {}, &info).error_code(),
            grpc::StatusCode::DEADLINE_EXCEEDED);
  watches.pop_back();
  EXPECT_TRUE(Serves(channel_));
}

// In HTTP/2 the limit does not hold for a peer that has not acknowledged it.
// Newer gRPC applies the limit at once.
TEST_F(ListenerTest, APeerWithFarMoreCallsThanItMayHaveIsEndedOrRefused) {
  ServerOptions options = Patient();
  options.connections.max_concurrent_streams = 3;
  Start(options);
  Socket some(address()), many(address());
  const int refused = Refused(StalledCalls(70), &some);  // 2 x 3 and 64
  ASSERT_GE(refused, 0);
  EXPECT_TRUE(Eventually([this, refused] {
    return server_->Status().calls_in_progress == 70 - refused;
  }));
  if (refused == 0) {
    many.Send(StalledCalls(71));
    EXPECT_TRUE(many.AwaitEnd());
    EXPECT_EQ(Ended(Ending::kTooManyCalls), 1);
  } else {
    EXPECT_EQ(refused, 67);
    EXPECT_EQ(Refused(StalledCalls(71), &many), 68);
  }
  EXPECT_FALSE(some.Ended());
  EXPECT_TRUE(Serves());
}

// Peers of a unix socket cannot be distinguished, so they share a limit.
TEST_F(ListenerTest, OnAUnixSocketOneConnectionMayHaveMoreCalls) {
  const test::Directory directory;
  ServerOptions options = Patient();
  options.listen = {"unix:" + directory.Path("s")};
  options.connections.max_concurrent_streams = 3;
  Start(options);
  Socket many(address());
  const int refused = Refused(StalledCalls(80), &many);
  EXPECT_THAT(refused, AnyOf(0, 77));
  EXPECT_TRUE(Eventually([this, refused] {
    return server_->Status().calls_in_progress == 80 - refused;
  }));
  EXPECT_FALSE(many.Ended());
  EXPECT_TRUE(Serves());
}

// Once gRPC's client knows the limit, it sends no call with more metadata.
TEST_F(ListenerTest, MoreMetadataThanTheLimitIsRefused) {
  const auto call = [this](std::size_t bytes) {
    grpc::ClientContext context;
    context.set_deadline(Deadline());
    context.AddMetadata("x-much", std::string(bytes, 'a'));
    v1::GetServerInfoResponse info;
    return stub_->GetServerInfo(&context, {}, &info).error_code();
  };
  Start(Patient());
  EXPECT_EQ(call(7000), grpc::StatusCode::OK);
  EXPECT_EQ(call(9000), grpc::StatusCode::RESOURCE_EXHAUSTED);
  ServerOptions options = Patient();
  options.connections.max_metadata_bytes = 32 << 10;
  Start(options);
  EXPECT_EQ(call(9000), grpc::StatusCode::OK);
  EXPECT_EQ(call(33000), grpc::StatusCode::RESOURCE_EXHAUSTED);
}

// A peer that exceeds the limit gets an error and no answer.
TEST_F(ListenerTest, ClientsThatDoNotKeepToTheLimitAreRefused) {
  ServerOptions options = Patient();
  options.connections.max_metadata_bytes = 2 << 10;
  Start(options);
  Socket socket(address());
  socket.Send(kPreface + kSettings);
  // SETTINGS_MAX_HEADER_LIST_SIZE is 2048.
  EXPECT_THAT(socket.ReadFrame(), HasSubstr(std::string("\0\6\0\0\x08\0", 6)));
  std::string much;
  for (int i = 0; i < 20; ++i) {
    much += http2::Header("x-much", std::string(100, 'a'));
  }
  socket.Send(CallHeaders(kInfo, 1, much) + http2::LastMessage(1, ""));
  std::string frame;
  do {
    frame = socket.ReadFrame();
    ASSERT_NE(frame, "");
    EXPECT_NE(frame[3], 0) << "an answer";
  } while (frame[3] != 1);
  EXPECT_EQ(frame[4] & 1, 1) << "not the end of the call";
  EXPECT_TRUE(Serves());
}

// Windows of unread streams are smaller than HTTP/2's 64 KiB, which a client
// assumes until it has read the settings.
TEST_F(ListenerTest, AFirstMessageMayBeLarge) {
  Start(Patient());
  v1::ApplyRopeRequest request;
  request.mutable_rope()->mutable_spec()->set_pairing(v1::PAIRING_HALF_SPLIT);
  request.mutable_positions()->set_start(0);
  request.set_layout(v1::LAYOUT_THD);
  SetTensor(v1::DTYPE_FLOAT32, {1 << 16, 1, 4},
            std::vector<float>(1 << 18, 1.0f), request.mutable_q());
  for (int i = 0; i < 20; ++i) {
    channel_ = Connect(address());
    stub_ = v1::PositionalEncodingService::NewStub(channel_);
    v1::ApplyRopeResponse response;
    const grpc::Status status = Apply(request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
  }
}

TEST_F(ListenerTest, MoreConnectionsThanDescriptorsAreRefused) {
  ServerOptions options = Patient();
  options.connections.max_connections = 1 << 30;
  EXPECT_THAT(std::string(Server::Start(options).status().message()),
              HasSubstr("--max-connections: "));
}

// Takes all remaining descriptors of this process.
class NoDescriptors {
 public:
  NoDescriptors() {
    getrlimit(RLIMIT_NOFILE, &before_);
    rlimit few = before_;
    few.rlim_cur = 256;
    setrlimit(RLIMIT_NOFILE, &few);
    int fd;
    while ((fd = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0) {
      taken_.emplace_back(fd);
    }
  }
  ~NoDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_;
  std::vector<Descriptor> taken_;
};

// gRPC 1.51's own listener would never accept again.
TEST_F(ListenerTest, AcceptingGoesOnAfterDescriptorsRanOut) {
  Start(Patient());
  EXPECT_TRUE(Serves());
  {
    std::vector<Socket> clients;
    clients.reserve(32);
    for (int i = 0; i < 32; ++i) clients.push_back(Socket::NotConnected());
    const NoDescriptors none;
    for (Socket& client : clients) client.ConnectTo(address());
    EXPECT_TRUE(
        Eventually([this] { return Ended(Ending::kNoDescriptor) > 16; }));
  }
  EXPECT_TRUE(Serves());
}

TEST_F(ListenerTest, ADrainTellsIdleConnectionsToGo) {
  Start(Patient());
  Socket idle(address());
  idle.Send(kPreface + kSettings);
  EXPECT_TRUE(idle.AwaitFrame(4));
  server_->Drain();
  EXPECT_TRUE(idle.AwaitFrame(7));  // GOAWAY, from gRPC
  EXPECT_TRUE(idle.AwaitEnd());
}

}  // namespace
}  // namespace posenc::server
