// Listeners, health, limits and drain.

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "nlohmann/json.hpp"
#include "server/admin/http.h"
#include "tests/fixtures/directory.h"
#include "tests/fixtures/http2.h"
#include "tests/fixtures/server.h"

namespace posenc::server {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::SizeIs;

using LifecycleTest = ServerTest;

constexpr char kCheck[] = "/grpc.health.v1.Health/Check";
constexpr char kWatch[] = "/grpc.health.v1.Health/Watch";
constexpr char kService[] = "posenc.v1.PositionalEncodingService";
// grpc.health.v1.HealthCheckResponse.
const std::string kServing = "\x08\x01";
const std::string kNotServing = "\x08\x02";
// Rows of a table of 64 MiB, which is more than any window.
constexpr std::int64_t kManyRows = 1 << 17;

// grpc.health.v1.HealthCheckRequest.
std::string HealthRequest(const std::string& service) {
  return absl::StrCat("\x0A", std::string(1, static_cast<char>(service.size())),
                      service);
}

std::string Health(const std::shared_ptr<grpc::Channel>& channel,
                   const std::string& service) {
  std::string response;
  const grpc::Status status =
      RawUnary(channel, kCheck, HealthRequest(service), &response);
  EXPECT_TRUE(status.ok()) << service << ": " << status.error_message();
  return response;
}

absl::Status StartError(const std::vector<std::string>& listen) {
  ServerOptions options;
  options.listen = listen;
  absl::StatusOr<std::unique_ptr<Server>> server = Server::Start(options);
  return server.status();
}

TEST_F(LifecycleTest, ChannelzAloneListsTheServers) {
  const auto servers = ChannelzPage("/channelz/servers");
  ASSERT_TRUE(servers.ok()) << servers.status();
  // Timestamps may differ: gRPC computes them for each page.
  const auto ids = [](const std::string& page) {
    std::vector<std::string> found;
    const auto json = nlohmann::json::parse(page);
    for (const auto& server : json["server"]) {
      found.push_back(server["ref"]["serverId"].get<std::string>());
    }
    return found;
  };
  EXPECT_THAT(ids(*servers), SizeIs(1));
  for (const char* path : {"/channelz", "/channelz/"}) {
    const auto page = ChannelzPage(path);
    ASSERT_TRUE(page.ok()) << page.status();
    EXPECT_EQ(ids(*page), ids(*servers));
  }
}

TEST_F(LifecycleTest, AnAddressMayBeGivenOnceOnly) {
  EXPECT_THAT(std::string(StartError({"127.0.0.1:7", "unix:/nowhere/posenc",
                                      "127.0.0.1:7"})
                              .message()),
              HasSubstr("--listen: 127.0.0.1:7: was given more than once"));
  // Port 0 gives another port each time.
  EXPECT_TRUE(StartError({"127.0.0.1:0", "127.0.0.1:0"}).ok());
}

TEST_F(LifecycleTest, EveryHealthNameServes) {
  for (const char* name :
       {"", kService, "posenc.readiness", "posenc.liveness"}) {
    EXPECT_EQ(Health(channel_, name), kServing) << name;
  }
  std::string response;
  EXPECT_EQ(RawUnary(channel_, kCheck, HealthRequest("other"), &response)
                .error_code(),
            grpc::StatusCode::NOT_FOUND);
}

TEST_F(LifecycleTest, DrainFinishesCallsAndRefusesNewOnes) {
  RawCall watch(channel_, kWatch);
  watch.WriteLast(HealthRequest("posenc.readiness"));
  std::string health;
  ASSERT_TRUE(watch.Read(&health));
  EXPECT_EQ(health, kServing);

  // This call is in progress, because its client has not read the response yet.
  // Its headers arrive with the first bytes of the response: the handler has
  // returned by then.
  const std::shared_ptr<grpc::Channel> other = Connect(server_->addresses()[0]);
  RawCall slow(other, absl::StrCat("/", kService, "/BuildTable"));
  slow.WriteLast(LargeTable(kManyRows).SerializeAsString());
  slow.ReadHeaders();

  std::thread drain([this] { server_->Drain(); });
  ASSERT_TRUE(watch.Read(&health));
  EXPECT_EQ(health, kNotServing);
  EXPECT_EQ(Health(channel_, "posenc.liveness"), kServing);

  // Readiness ends just before calls are refused.
  grpc::Status refused;
  do {
    v1::GetServerInfoResponse response;
    refused = Call(&Stub::GetServerInfo, v1::GetServerInfoRequest(), &response);
  } while (refused.ok());
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(ReadDetails(refused).reason, "ERROR_REASON_DRAINING");
  EXPECT_EQ(Health(channel_, ""), kNotServing);
  EXPECT_EQ(Health(channel_, kService), kNotServing);

  std::string bytes;
  ASSERT_TRUE(slow.Read(&bytes));
  v1::BuildTableResponse table;
  ASSERT_TRUE(table.ParseFromString(bytes));
  EXPECT_EQ(table.cos().data().size(), std::size_t{1} << 25);
  EXPECT_TRUE(slow.Finish().ok());
  drain.join();
  EXPECT_EQ(RawUnary(channel_, absl::StrCat("/", kService, "/GetServerInfo"),
                     "", &bytes)
                .error_code(),
            grpc::StatusCode::UNAVAILABLE);
}

TEST_F(LifecycleTest, DrainCutsCallsThatOutlastIt) {
  Start({.drain_timeout = absl::Milliseconds(20)});
  RawCall slow(channel_, absl::StrCat("/", kService, "/BuildTable"));
  slow.WriteLast(LargeTable(kManyRows).SerializeAsString());
  slow.ReadHeaders();
  server_->Drain();
  std::string bytes;
  EXPECT_FALSE(slow.Read(&bytes));
  EXPECT_EQ(slow.Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

// A peer that has begun to receive 64 MiB, and reads no more. Its windows are
// open, so gRPC writes until the socket is full.
http2::Socket PeerThatDoesNotRead(const std::string& address) {
  http2::Socket peer(address);
  peer.Send(http2::kOpenWindows +
            http2::CallHeaders(absl::StrCat("/", kService, "/BuildTable"), 1) +
            http2::LastMessage(1, LargeTable(kManyRows).SerializeAsString()));
  EXPECT_TRUE(peer.AwaitFrame(0));
  return peer;
}

TEST_F(LifecycleTest, DrainEndsThoughAPeerDoesNotRead) {
  Start({.drain_timeout = absl::Milliseconds(20)});
  http2::Socket peer = PeerThatDoesNotRead(server_->addresses()[0]);
  server_->Drain();
  EXPECT_TRUE(peer.AwaitEnd());
}

TEST_F(LifecycleTest, APeerThatDoesNotReadIsEndedByTheKeepaliveTimeout) {
  Start({.connections = {.keepalive_timeout = absl::Seconds(1)}});
  http2::Socket peer = PeerThatDoesNotRead(server_->addresses()[0]);
  EXPECT_GT(server_->Status().claimed_bytes, 0);
  ExpectNothingInFlight();
  EXPECT_TRUE(peer.AwaitEnd());
}

// The server ends the call before it ends the connection. But a response that
// gRPC has begun to write keeps its memory until the peer has taken it.
TEST_F(LifecycleTest, APeerThatTakesLittleIsEndedIfOthersNeedItsMemory) {
  Start(
      {.connections = {.keepalive_timeout = absl::Seconds(2)},
       .limits = {.max_request_bytes = 1 << 20, .in_flight_bytes = 66 << 20}});
  http2::Socket peer = PeerThatDoesNotRead(server_->addresses()[0]);
  std::thread takes_little([&peer] {
    char bytes[16 << 10];
    pollfd poller = {peer.fd(), POLLIN, 0};
    while (poll(&poller, 1, 60000) == 1 &&
           recv(peer.fd(), bytes, sizeof(bytes), 0) > 0) {
      absl::SleepFor(absl::Milliseconds(100));
    }
  });
  v1::BuildTableResponse table;
  const grpc::Status status = Call(&Stub::BuildTable, LargeTable(), &table);
  EXPECT_TRUE(status.ok()) << status.error_message();
  takes_little.join();
  EXPECT_THAT(server_->Status().connections_refused,
              testing::Contains(testing::Pair("not_reading", 1)));
}

TEST_F(LifecycleTest, ListensOnTcpAndUnixSocketsAtOnce) {
  const test::Directory directory;
  ServerOptions options;
  options.listen = {"127.0.0.1:0", "unix:" + directory.Path("s"),
                    "localhost:0"};
  Start(options);
  ASSERT_EQ(server_->addresses().size(), 3u);
  EXPECT_THAT(server_->addresses()[0],
              testing::MatchesRegex("127\\.0\\.0\\.1:[1-9][0-9]*"));
  EXPECT_EQ(server_->addresses()[1], options.listen[1]);
  for (const std::string& address : server_->addresses()) {
    EXPECT_EQ(Health(Connect(address), ""), kServing) << address;
  }
  server_.reset();
  EXPECT_NE(access(directory.Path("s").c_str(), F_OK), 0) << "left behind";
}

TEST_F(LifecycleTest, TheAddressOfAllIpv6TakesIpv4Too) {
  if (std::ifstream("/proc/net/if_inet6").peek() == EOF) {
    GTEST_SKIP() << "this machine has no IPv6";
  }
  Start({.listen = {"[::]:0"}, .allow_insecure = true});
  const std::string& all = server_->addresses()[0];
  for (const std::string host : {"[::1]", "127.0.0.1"}) {
    EXPECT_EQ(Health(Connect(host + all.substr(all.rfind(':'))), ""), kServing);
  }
}

TEST_F(LifecycleTest, TakesOverAnAbandonedUnixSocketButNoOther) {
  const test::Directory directory;
  const std::string path = directory.Path("s");
  sockaddr_un name = {};
  name.sun_family = AF_UNIX;
  path.copy(name.sun_path, sizeof(name.sun_path) - 1);
  const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&name), sizeof(name)), 0);
  ASSERT_EQ(listen(fd, 1), 0);
  const absl::Status in_use = StartError({"unix:" + path});
  EXPECT_EQ(in_use.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(in_use.message()),
              HasSubstr("a running process listens there"));
  close(fd);  // the file stays
  ASSERT_EQ(access(path.c_str(), F_OK), 0);
  Start({.listen = {"unix:" + path}});
  EXPECT_EQ(Health(channel_, ""), kServing);
  server_.reset();

  std::ofstream(path) << "precious";
  const absl::Status file = StartError({"unix:" + path});
  EXPECT_EQ(file.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(file.message()), HasSubstr("is not a socket"));
  EXPECT_EQ(access(path.c_str(), F_OK), 0);
}

TEST_F(LifecycleTest, BadAddressesAreRefused) {
  for (const char* address :
       {"", "127.0.0.1", "127.0.0.1:", ":80", "127.0.0.1:65536", "127.0.0.1:-1",
        "127.0.0.1:x", "::1:80", "unix:"}) {
    const absl::Status status = StartError({address});
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << address;
    EXPECT_THAT(std::string(status.message()), HasSubstr("--listen: "));
  }
  const absl::Status status = StartError({"unix:/" + std::string(200, 'x')});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(LifecycleTest, PlaintextOffLoopbackMustBeAskedForByName) {
  for (const char* address : {"0.0.0.0:0", "[::]:0", "example.com:0"}) {
    const absl::Status status = StartError({address});
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << address;
    EXPECT_THAT(std::string(status.message()), HasSubstr("--allow-insecure"));
  }
  ServerOptions options;
  options.listen = {"0.0.0.0:0"};
  options.allow_insecure = true;
  EXPECT_TRUE(Server::Start(options).ok());
}

// A request whose bytes are mostly one tensor.
v1::ApplyRopeRequest RequestOf(std::int64_t floats) {
  v1::ApplyRopeRequest request;
  request.mutable_rope()->mutable_spec()->set_pairing(v1::PAIRING_HALF_SPLIT);
  request.mutable_positions()->set_start(0);
  request.set_layout(v1::LAYOUT_THD);
  SetTensor(v1::DTYPE_FLOAT32, {floats / 4, 1, 4},
            std::vector<float>(floats, 1.0f), request.mutable_q());
  return request;
}

TEST_F(LifecycleTest, ARequestOverTheLimitIsToldBothSizes) {
  Start({.limits = {.max_request_bytes = 1 << 20}});
  v1::ApplyRopeResponse response;
  const v1::ApplyRopeRequest fits = RequestOf((1 << 18) - 64);
  ASSERT_LE(fits.ByteSizeLong(), 1u << 20);
  EXPECT_TRUE(Apply(fits, &response).ok());

  const v1::ApplyRopeRequest over = RequestOf(1 << 18);
  const grpc::Status status = Apply(over, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  const Details details = ReadDetails(status);
  EXPECT_EQ(details.reason, "ERROR_REASON_MESSAGE_TOO_LARGE");
  EXPECT_EQ(details.metadata.at("sizeBytes"),
            absl::StrCat(over.ByteSizeLong()));
  EXPECT_EQ(details.metadata.at("limitBytes"), "1048576");
  EXPECT_FALSE(details.has_retry_info);

  // Far above the limit, gRPC itself refuses before reading, with the code but
  // no details.
  EXPECT_EQ(Apply(RequestOf(1 << 20), &response).error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_TRUE(Apply(fits, &response).ok());
}

TEST_F(LifecycleTest, AResponseOverTheLimitIsToldItsSizeWithoutBeingBuilt) {
  Start({.limits = {.max_response_bytes = 1 << 20}});
  // 2 x 524032 bytes, just below the limit.
  v1::BuildTableRequest request = LargeTable(2047);
  v1::BuildTableResponse response;
  ASSERT_TRUE(Table(request, &response).ok());
  EXPECT_LE(response.ByteSizeLong(), 1u << 20);

  request.set_rows(2048);
  const std::size_t row = 2 * 64 * 4;
  // One more row; amplitude, tags and lengths do not change.
  const std::string size = absl::StrCat(response.ByteSizeLong() + row);
  grpc::Status status = Table(request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  Details details = ReadDetails(status);
  EXPECT_EQ(details.reason, "ERROR_REASON_MESSAGE_TOO_LARGE");
  EXPECT_EQ(details.metadata.at("sizeBytes"), size);
  EXPECT_EQ(details.metadata.at("limitBytes"), "1048576");
  EXPECT_THAT(status.error_message(),
              AllOf(HasSubstr(size), HasSubstr("1048576"),
                    HasSubstr("--max-response-bytes")));

  // 2^63 - 1 rows of 512 bytes do not fit 64 bits either.
  request.set_rows(std::numeric_limits<std::int64_t>::max());
  status = Table(request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  details = ReadDetails(status);
  EXPECT_EQ(details.reason, "ERROR_REASON_MESSAGE_TOO_LARGE");
  EXPECT_THAT(details.metadata.at("sizeBytes"),
              testing::StartsWith("47223664828696452"));

  status = Apply(RequestOf(1 << 18),
                 std::make_unique<v1::ApplyRopeResponse>().get());
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(ReadDetails(status).reason, "ERROR_REASON_MESSAGE_TOO_LARGE");
}

TEST_F(LifecycleTest, CompressedMessagesAreRefused) {
  grpc::ClientContext context;
  context.set_compression_algorithm(GRPC_COMPRESS_GZIP);
  v1::ApplyRopeResponse response;
  EXPECT_EQ(
      stub_->ApplyRope(&context, RequestOf(1 << 16), &response).error_code(),
      grpc::StatusCode::UNIMPLEMENTED);
}

}  // namespace
}  // namespace posenc::server
