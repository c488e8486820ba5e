// Balances calls over many servers behind one name.

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "gmock/gmock.h"
#include "grpcpp/ext/health_check_service_server_builder_option.h"
#include "grpcpp/grpcpp.h"
#include "grpcpp/health_check_service_interface.h"
#include "gtest/gtest.h"
#include "posenc/client.h"
#include "posenc/v1/service.grpc.pb.h"
#include "server/service/server.h"

namespace posenc {
namespace {

constexpr char kService[] = "posenc.v1.PositionalEncodingService";

// A server that answers with its name.
class NamedService : public v1::PositionalEncodingService::Service {
 public:
  explicit NamedService(std::string name) : name_(std::move(name)) {}

  grpc::Status GetServerInfo(grpc::ServerContext*,
                             const v1::GetServerInfoRequest*,
                             v1::GetServerInfoResponse* response) override {
    response->set_version(name_);
    return grpc::Status::OK;
  }

 private:
  const std::string name_;
};

class NamedServer {
 public:
  NamedServer(const std::string& name, bool serving) : service_(name) {
    grpc::EnableDefaultHealthCheckService(true);
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                             &port_);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    grpc::EnableDefaultHealthCheckService(false);  // for servers of other tests
    SetServing(serving);
  }

  void SetServing(bool serving) {
    server_->GetHealthCheckService()->SetServingStatus(kService, serving);
  }

  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }

 private:
  NamedService service_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

Client ClientOf(const std::vector<std::string>& addresses) {
  ClientOptions options;
  for (const std::string& address : addresses) {
    absl::StrAppend(&options.target, options.target.empty() ? "ipv4:" : ",",
                    address);
  }
  return Client::Connect(options);
}

std::string Called(const Client& client) {
  const auto info = client.GetServerInfo();
  EXPECT_TRUE(info.ok()) << info.status();
  return info.ok() ? info->version() : "";
}

TEST(BalanceTest, HealthyServersTakeTurns) {
  NamedServer a("a", true), b("b", true);
  const Client client = ClientOf({a.address(), b.address()});
  // Calls until both connections are open.
  std::map<std::string, int> calls;
  while (calls.size() < 2) ++calls[Called(client)];
  calls.clear();

  for (int i = 0; i < 20; ++i) ++calls[Called(client)];

  EXPECT_EQ(calls["a"], 10);
  EXPECT_EQ(calls["b"], 10);
}

TEST(BalanceTest, AServerThatIsNotHealthyGetsNoCalls) {
  NamedServer a("a", false), b("b", true);
  const Client client = ClientOf({a.address(), b.address()});
  for (int i = 0; i < 20; ++i) EXPECT_EQ(Called(client), "b");

  // The client watches the health of both servers: it begins to call a server
  // that becomes healthy, and calls an unhealthy server no more.
  a.SetServing(true);
  while (Called(client) != "a") continue;
  b.SetServing(false);
  int others = 0;
  while (others < 20) others = Called(client) == "a" ? others + 1 : 0;
}

TEST(BalanceTest, ANameIsResolved) {
  NamedServer a("a", true);
  ClientOptions options;
  options.target = absl::StrCat("dns:///localhost:",
                                a.address().substr(a.address().find(':') + 1));

  EXPECT_EQ(Called(Client::Connect(options)), "a");
}

std::unique_ptr<server::Server> StartPosenc() {
  server::ServerOptions options;
  options.listen = {"127.0.0.1:0"};
  // Time for clients to learn that the server drains.
  options.lame_duck = absl::Seconds(1);
  auto server = server::Server::Start(options);
  EXPECT_TRUE(server.ok()) << server.status();
  return server.ok() ? *std::move(server) : nullptr;
}

TEST(BalanceTest, NoCallFailsWhileOneOfTwoServersDrains) {
  const auto first = StartPosenc(), second = StartPosenc();
  ASSERT_NE(first, nullptr);
  ASSERT_NE(second, nullptr);
  const Client client =
      ClientOf({first->addresses()[0], second->addresses()[0]});
  ASSERT_TRUE(client.GetServerInfo().ok());
  std::atomic<bool> drained = false;
  std::thread drain([&] {
    first->Drain();
    drained = true;
  });
  std::vector<std::string> failures;
  const auto call = [&] {
    const absl::Status status = client.GetServerInfo().status();
    if (!status.ok()) failures.push_back(status.ToString());
  };
  while (!drained) call();
  drain.join();
  for (int i = 0; i < 50; ++i) call();

  EXPECT_THAT(failures, testing::IsEmpty());
}

}  // namespace
}  // namespace posenc
