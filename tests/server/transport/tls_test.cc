// A server with TLS: accepted clients, and new certificates while it serves.

#include "server/transport/tls.h"

#include <openssl/ssl.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "tests/fixtures/certificates.h"
#include "tests/fixtures/directory.h"
#include "tests/fixtures/http2.h"
#include "tests/fixtures/server.h"

namespace posenc::server {
namespace {

using http2::Socket;
using test::Authority;
using test::CertificateShape;
using test::Eventually;
using test::Identity;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

class TlsTest : public ServerTest {
 protected:
  void SetUp() override {
    options_.listen = {"127.0.0.1:0"};
    Write(root_.Issue());
    options_.tls.cert = files_.Path("cert");
    options_.tls.key = files_.Path("key");
    options_.notice = [this](Notice, absl::string_view line) {
      const std::lock_guard<std::mutex> lock(mutex_);
      notices_.emplace_back(line);
    };
  }
  void TearDown() override { server_.reset(); }  // its notices use the members

  void Write(const Identity& identity) const {
    files_.Write("cert", identity.cert);
    files_.Write("key", identity.key);
  }

  std::vector<std::string> notices() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return notices_;
  }

  // Returns a channel that trusts `root`, with a certificate if `mine` has one.
  std::shared_ptr<grpc::Channel> Trusting(const Authority& root,
                                          const Identity& mine = {}) const {
    grpc::SslCredentialsOptions ssl;
    ssl.pem_root_certs = root.cert();
    ssl.pem_cert_chain = mine.cert;
    ssl.pem_private_key = mine.key;
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
    return grpc::CreateCustomChannel(server_->addresses()[0],
                                     grpc::SslCredentials(ssl), arguments);
  }

  static grpc::StatusCode Call(const std::shared_ptr<grpc::Channel>& channel) {
    std::string response;
    return RawUnary(channel,
                    "/posenc.v1.PositionalEncodingService/GetServerInfo", "",
                    &response)
        .error_code();
  }

  std::string StartError() const {
    return std::string(Server::Start(options_).status().message());
  }

  const test::Directory files_;
  const Authority root_{"root"};
  const Authority other_{"other"};
  ServerOptions options_;

 private:
  std::mutex mutex_;
  std::vector<std::string> notices_;
};

TEST_F(TlsTest, ServesClientsThatTrustItsAuthorityAndNoPlaintext) {
  Start(options_);
  EXPECT_EQ(Call(Trusting(root_)), grpc::StatusCode::OK);
  EXPECT_EQ(Call(Trusting(other_)), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(Call(Connect(server_->addresses()[0])),
            grpc::StatusCode::UNAVAILABLE);
}

// Editors add a byte order mark, and tools put a certificate beside a key.
TEST_F(TlsTest, ServesOnlyTheCertificatesThatItChecked) {
  const Identity good = root_.Issue();
  const std::string mark = "\xef\xbb\xbf", old = other_.Issue().cert;
  std::string lines = good.cert;
  for (std::size_t i = 0; (i = lines.find('\n', i)) != lines.npos; i += 2) {
    lines.insert(i, "\r");
  }
  for (const Identity& identity :
       {Identity{mark + good.cert, mark + good.key}, Identity{lines, good.key},
        Identity{"a remark\n" + good.key + good.cert, good.key + old}}) {
    Write(identity);
    options_.tls.client_ca =
        files_.Write("client-ca", mark + other_.cert() + good.key);
    Start(options_);
    EXPECT_EQ(Call(Trusting(root_, other_.Issue())), grpc::StatusCode::OK)
        << identity.cert << identity.key;
  }
}

TEST_F(TlsTest, NeedsNoPermissionOffLoopback) {
  options_.listen = {"0.0.0.0:0"};
  EXPECT_TRUE(Server::Start(options_).ok());
}

TEST_F(TlsTest, UnixSocketsStayPlaintext) {
  options_.listen = {"unix:" + files_.Path("socket"), "127.0.0.1:0"};
  Start(options_);
  EXPECT_EQ(Call(channel_), grpc::StatusCode::OK);
  EXPECT_EQ(Call(Connect(server_->addresses()[1])),
            grpc::StatusCode::UNAVAILABLE);
}

TEST_F(TlsTest, WithAClientAuthorityOnlyItsClientsGetIn) {
  options_.tls.client_ca = files_.Write("client-ca", other_.cert());
  Start(options_);
  EXPECT_EQ(Call(Trusting(root_, other_.Issue())), grpc::StatusCode::OK);
  EXPECT_EQ(Call(Trusting(root_)), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(Call(Trusting(root_, root_.Issue())),
            grpc::StatusCode::UNAVAILABLE);
  CertificateShape expired;
  expired.begins_in = -7200;
  expired.ends_in = -3600;
  EXPECT_EQ(Call(Trusting(root_, other_.Issue(expired))),
            grpc::StatusCode::UNAVAILABLE);
}

// Returns whether a handshake with at most this version of TLS succeeds.
bool Handshake(const std::string& address, int version) {
  Socket socket(address);
  SSL_CTX* const context = SSL_CTX_new(TLS_client_method());
  SSL_CTX_set_security_level(context, 0);
  SSL_CTX_set_min_proto_version(context, TLS1_VERSION);
  SSL_CTX_set_max_proto_version(context, version);
  SSL* const ssl = SSL_new(context);
  const unsigned char h2[] = {2, 'h', '2'};
  SSL_set_alpn_protos(ssl, h2, sizeof(h2));
  SSL_set_fd(ssl, socket.fd());
  const bool done = SSL_connect(ssl) == 1;
  SSL_free(ssl);
  SSL_CTX_free(context);
  return done;
}

TEST_F(TlsTest, SpeaksTls12AndNothingOlder) {
  Start(options_);
  const std::string& address = server_->addresses()[0];
  EXPECT_TRUE(Handshake(address, TLS1_3_VERSION));
  EXPECT_TRUE(Handshake(address, TLS1_2_VERSION));
  EXPECT_FALSE(Handshake(address, TLS1_1_VERSION));
  EXPECT_FALSE(Handshake(address, TLS1_VERSION));
}

TEST_F(TlsTest, UnfinishedHandshakesAreEndedInTime) {
  options_.connections.handshake_timeout = absl::Milliseconds(100);
  Start(options_);
  Socket silent(server_->addresses()[0]), half(server_->addresses()[0]);
  half.Send(std::string("\x16\x03\x01\x02\x00", 5));
  EXPECT_TRUE(silent.AwaitEnd());
  EXPECT_TRUE(half.AwaitEnd());
}

TEST_F(TlsTest, AConnectionWithoutACallIsEndedInTimeAndOthersStay) {
  options_.connections.max_connection_idle = absl::Milliseconds(300);
  Start(options_);
  const auto channel = Trusting(root_);
  std::unique_ptr<RawCall> watch;
  std::string health;
  // On a busy machine its handshake may take longer than the limit.
  ASSERT_TRUE(Eventually([&] {
    watch = std::make_unique<RawCall>(channel, "/grpc.health.v1.Health/Watch");
    watch->WriteLast("");
    return watch->Read(&health);
  }));
  const auto idle = Trusting(root_);
  ASSERT_TRUE(idle->WaitForConnected(std::chrono::system_clock::now() +
                                     std::chrono::seconds(10)));
  EXPECT_TRUE(
      Eventually([&] { return idle->GetState(false) == GRPC_CHANNEL_IDLE; }));
  EXPECT_EQ(Call(channel), grpc::StatusCode::OK);
  EXPECT_EQ(channel->GetState(false), GRPC_CHANNEL_READY);
}

TEST_F(TlsTest, BadFilesAreRefusedAtStart) {
  files_.Write("key", root_.Issue().key);
  EXPECT_EQ(StartError(), absl::StrCat("--tls-key: ", files_.Path("key"),
                                       ": is not the key of the certificate"));
  options_.tls.key = "";
  EXPECT_THAT(StartError(), HasSubstr("--tls-key come together"));
  options_.tls = {"", "", files_.Path("cert")};
  EXPECT_THAT(StartError(), HasSubstr("--tls-client-ca: is of no use"));
}

TEST_F(TlsTest, ABrokenFileLeavesTheLastGoodOneInForce) {
  Start(options_);
  const Identity good = root_.Issue();
  const absl::Time expiry = *server_->Status().tls_not_after;
  EXPECT_GT(expiry, absl::Now());
  CertificateShape expired;
  expired.begins_in = -7200;
  expired.ends_in = -3600;
  int errors = 0;
  for (const Identity& broken :
       {Identity{"garbage", root_.Issue().key}, Identity{good.cert, "garbage"},
        Identity{good.cert, root_.Issue().key}, Identity{"", ""},
        root_.Issue(expired)}) {
    // The server never uses a new key with an old certificate, or an old key
    // with a new certificate.
    const std::size_t told = notices().size();
    Write(broken);
    EXPECT_EQ(server_->Reload(options_), absl::OkStatus());
    EXPECT_GE(server_->Status().tls_reload_errors, ++errors);
    ASSERT_GT(notices().size(), told);
    EXPECT_THAT(notices().back(),
                AllOf(StartsWith("--tls-"),
                      HasSubstr("; what was read before stays in force")));
    EXPECT_EQ(*server_->Status().tls_not_after, expiry);
    EXPECT_EQ(Call(Trusting(root_)), grpc::StatusCode::OK);
  }
}

TEST_F(TlsTest, NewFilesAreLoadedAutomatically) {
  Start(options_);
  const Authority next("next");
  Write(next.Issue());
  EXPECT_TRUE(Eventually([&] {
    server_->EverySecond();
    return Call(Trusting(next)) == grpc::StatusCode::OK;
  }));
  EXPECT_EQ(Call(Trusting(root_)), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(notices().back(), "certificates and tokens were read again");
}

// Old and new connections make calls during the rotations. `./run chaos` has a
// longer test of rotations.
TEST_F(TlsTest, RotationsFailNoCall) {
  options_.tls.client_ca = files_.Write("client-ca", other_.cert());
  Start(options_);
  const Identity mine = other_.Issue();
  std::atomic<bool> stop{false};
  std::atomic<int> calls{0}, failures{0};
  std::thread load([&] {
    const auto old = Trusting(root_, mine);
    while (!stop.load()) {
      failures += Call(old) != grpc::StatusCode::OK;
      failures += Call(Trusting(root_, mine)) != grpc::StatusCode::OK;
      calls += 2;
    }
  });
  for (int i = 0; i < 20; ++i) {
    Write(root_.Issue());
    files_.Write("client-ca", other_.cert() + root_.cert());
    EXPECT_EQ(server_->Reload(options_), absl::OkStatus());
    const int before = calls.load();
    EXPECT_TRUE(Eventually([&] { return calls.load() >= before + 20; }));
  }
  stop = true;
  load.join();
  EXPECT_EQ(failures.load(), 0);
}

}  // namespace
}  // namespace posenc::server
