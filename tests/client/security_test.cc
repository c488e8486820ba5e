// TLS and tokens of clients, against the server.

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "posenc/client.h"
#include "server/service/server.h"
#include "tests/fixtures/certificates.h"
#include "tests/fixtures/directory.h"
#include "tests/fixtures/eventually.h"

namespace posenc {
namespace {

using test::Authority;
using test::Eventually;
using test::Identity;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

class SecurityTest : public testing::Test {
 protected:
  SecurityTest() {
    ca_ = files_.Write("ca", root_.cert());
    const Identity identity = root_.Issue();
    server_options_.listen = {"127.0.0.1:0", "unix:" + files_.Path("socket")};
    server_options_.tls.cert = files_.Write("cert", identity.cert);
    server_options_.tls.key = files_.Write("key", identity.key);
  }

  void Start() {
    auto server = server::Server::Start(server_options_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    options_.target = server_->addresses()[0];
    options_.tls = TlsOptions();
    options_.tls->ca_file = ca_;
    // No retries: failures here are permanent.
    options_.service_config = "{}";
  }

  absl::Status Call() const {
    return Client::Connect(options_).GetServerInfo().status();
  }
  absl::StatusCode Code() const { return Call().code(); }

  std::string Error() const {
    const absl::Status status = Client::CheckCredentials(options_);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(Call(), status);
    return std::string(status.message());
  }

  const test::Directory files_;
  const Authority root_{"root"};
  std::string ca_;
  server::ServerOptions server_options_;
  std::unique_ptr<server::Server> server_;
  ClientOptions options_;
};

TEST_F(SecurityTest, TrustsItsAuthorityAlone) {
  Start();
  EXPECT_EQ(Call(), absl::OkStatus());
  const Authority other("other");
  options_.tls->ca_file = files_.Write("other", other.cert());
  EXPECT_EQ(Code(), absl::StatusCode::kUnavailable);
  options_.tls->ca_file = "";  // the system's
  EXPECT_EQ(Code(), absl::StatusCode::kUnavailable);
  options_.tls.reset();
  EXPECT_EQ(Code(), absl::StatusCode::kUnavailable);
}

TEST_F(SecurityTest, BulkCallsHaveItToo) {
  server_options_.token_file = files_.Write("tokens", "ada secret\n");
  Start();
  options_.token = "secret";
  const std::vector<float> q(1 << 15, 1.0f);  // 128 KiB
  ApplyRopeArgs args;
  args.rope.mutable_spec()->set_pairing(v1::PAIRING_HALF_SPLIT);
  args.positions = StartAt(0);
  args.layout = v1::LAYOUT_THD;
  args.q = ViewOf(q, {1 << 13, 1, 4});
  const Client client = Client::Connect(options_);
  EXPECT_EQ(client.ApplyRope(args).status(), absl::OkStatus());
  EXPECT_EQ(client.ApplyRopeStream(args).status(), absl::OkStatus());
}

TEST_F(SecurityTest, TheServersNameMustBeInItsCertificate) {
  server_options_.listen = {"127.0.0.2:0"};
  Start();
  EXPECT_EQ(Code(), absl::StatusCode::kUnavailable);
  options_.tls->server_name = "posenc.test";
  EXPECT_EQ(Call(), absl::OkStatus());
  options_.tls->server_name = "other.test";
  EXPECT_EQ(Code(), absl::StatusCode::kUnavailable);
}

TEST_F(SecurityTest, ShowsItsCertificateIfItHasOne) {
  server_options_.tls.client_ca = ca_;
  Start();
  EXPECT_EQ(Code(), absl::StatusCode::kUnavailable);
  const Identity mine = root_.Issue();
  options_.tls->cert_file = files_.Write("mine", mine.cert);
  options_.tls->key_file = files_.Write("mine.key", mine.key);
  EXPECT_EQ(Call(), absl::OkStatus());
}

TEST_F(SecurityTest, ShowsItsTokenOverTlsAndToThisMachine) {
  server_options_.token_file = files_.Write("tokens", "ada secret\n");
  Start();
  EXPECT_EQ(Code(), absl::StatusCode::kUnauthenticated);
  EXPECT_EQ(ErrorReason(Call()), "ERROR_REASON_UNAUTHENTICATED");
  options_.token = "secret";
  EXPECT_EQ(Call(), absl::OkStatus());
  options_.token = "";
  options_.token_file = files_.Write("token", "secret\n");
  EXPECT_EQ(Call(), absl::OkStatus());

  options_.target = server_->addresses()[1];  // unix
  options_.tls.reset();
  EXPECT_EQ(Call(), absl::OkStatus());
  options_.token_file = files_.Write("token", "other\n");
  EXPECT_EQ(Code(), absl::StatusCode::kUnauthenticated);

  server_options_.tls = {};
  server_options_.listen = {"localhost:0"};
  Start();
  options_.tls.reset();
  options_.token_file = "";
  options_.token = "secret";
  EXPECT_EQ(Call(), absl::OkStatus());
  options_.target = "dns:///" + options_.target;
  EXPECT_EQ(Call(), absl::OkStatus());
}

TEST_F(SecurityTest, ATokenFileIsReadAgainWhenItChanges) {
  server_options_.token_file = files_.Write("tokens", "ada second\n");
  Start();
  options_.token_file = files_.Write("token", "first\n");
  const Client client = Client::Connect(options_);
  EXPECT_EQ(client.GetServerInfo().status().code(),
            absl::StatusCode::kUnauthenticated);
  files_.Write("token", "second\n");
  EXPECT_TRUE(Eventually([&] { return client.GetServerInfo().ok(); }));
  files_.Write("token", "");  // the earlier token stays in use
  EXPECT_TRUE(client.GetServerInfo().ok());
}

TEST_F(SecurityTest, ATokenIsNotSentInTheClearToAnotherMachine) {
  options_.token_file = files_.Write("token", "secret\n");
  for (const char* target :
       {"posenc:50051", "dns:///posenc:50051", "10.0.0.7:50051",
        "127.evil.test:50051", "localhost.evil.test:50051", "[2001:db8::1]:1",
        "ipv4:127.0.0.1:1,10.0.0.7:1", "xds:///localhost"}) {
    options_.target = target;
    EXPECT_EQ(Error(), absl::StrCat("token_file: would be sent in the clear "
                                    "to ",
                                    target, "; must have TLS"));
  }
  options_.token_file = "";
  options_.token = "secret";
  EXPECT_THAT(Error(), StartsWith("token: would be sent in the clear"));
}

TEST_F(SecurityTest, APortBeyondSixteenBitsIsEveryCallsError) {
  for (const char* target : {"127.0.0.1:65536", "dns:///posenc:99999",
                             "ipv4:127.0.0.1:1,127.0.0.1:99999999999",
                             "[::1]:70000", "unixbox:70000"}) {
    options_.target = target;
    const absl::Status status = Call();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()),
                StartsWith(absl::StrCat("target: ", target)));
    EXPECT_THAT(std::string(status.message()),
                EndsWith("; must be 1 to 65535"));
  }
}

TEST_F(SecurityTest, ASchemeOfTheWebIsEveryCallsError) {
  options_.target = "http://posenc:50051";
  EXPECT_EQ(Error(),
            "target: http://posenc:50051: must be posenc:50051, without "
            "http://; TLS is an option");
}

TEST_F(SecurityTest, BadFilesAreEveryCallsError) {
  options_.target = "127.0.0.1:1";
  options_.tls = TlsOptions();
  const std::string garbage = files_.Write("garbage", "garbage");
  const std::string empty = files_.Write("empty", "");
  options_.tls->ca_file = files_.Path("none");
  EXPECT_EQ(Error(), absl::StrCat("tls.ca_file: ", files_.Path("none"),
                                  ": No such file or directory"));
  options_.tls->ca_file = empty;
  EXPECT_EQ(Error(), absl::StrCat("tls.ca_file: ", empty, ": is empty"));
  options_.tls->ca_file = garbage;
  EXPECT_THAT(Error(), HasSubstr("holds no certificate"));
  options_.tls->ca_file = ca_;
  options_.tls->cert_file = files_.Path("cert");
  EXPECT_THAT(Error(), StartsWith("tls.key_file: is missing"));
  options_.tls->key_file = garbage;
  EXPECT_THAT(Error(), HasSubstr("must be a PEM key"));
  options_.tls->key_file = files_.Write("other", root_.Issue().key);
  EXPECT_THAT(Error(), HasSubstr("is not the key of the certificate"));
  options_.tls->cert_file = garbage;
  EXPECT_THAT(Error(), StartsWith("tls.cert_file: "));
  options_.tls->cert_file = "";
  EXPECT_THAT(Error(), StartsWith("tls.cert_file: is missing"));
  options_.tls.reset();
  options_.token_file = files_.Write("token", "two words\n");
  EXPECT_THAT(Error(), HasSubstr("must hold one token"));
  options_.token_file = empty;
  EXPECT_THAT(Error(), HasSubstr("is empty"));
  options_.token = "also";
  EXPECT_EQ(Error(), "token_file: excludes token");
  options_.token_file = "";
  options_.credentials = grpc::InsecureChannelCredentials();
  if (!Client::CheckCredentials(options_).ok()) {
    EXPECT_EQ(Error(), "credentials: carry no token; must be secure");
  } else {
    // Newer gRPC takes these credentials, but sends no token in the clear.
    const auto server = server::Server::Start({.listen = {"127.0.0.1:0"}});
    ASSERT_TRUE(server.ok()) << server.status();
    const std::string target = options_.target;
    options_.target = (*server)->addresses()[0];
    EXPECT_FALSE(Call().ok());
    options_.target = target;
  }
  options_.tls = TlsOptions();
  EXPECT_EQ(Error(), "tls: excludes credentials");
}

TEST_F(SecurityTest, AMissingTargetAndAServiceConfigThatIsNoJsonAreNamed) {
  options_.target = "";
  EXPECT_EQ(Error(), "target: is missing; such as localhost:50051");
  options_.target = "127.0.0.1:1";
  options_.service_config = "{";
  EXPECT_THAT(Error(), StartsWith("service_config: must be a JSON object: "));
}

}  // namespace
}  // namespace posenc
