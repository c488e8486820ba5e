// TLS and tokens of posenc and posenc-load, which have the same flags.

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "server/service/server.h"
#include "tests/fixtures/certificates.h"
#include "tests/fixtures/cli.h"
#include "tests/fixtures/directory.h"

namespace posenc::cli {
namespace {

using test::Identity;
using testing::HasSubstr;

class SecurityFlagsTest : public testing::Test {
 protected:
  SecurityFlagsTest() {
    const Identity identity = root_.Issue();
    server::ServerOptions options;
    options.listen = {"127.0.0.1:0"};
    options.tls.cert = files_.Write("cert", identity.cert);
    options.tls.key = files_.Write("key", identity.key);
    options.tls.client_ca = files_.Write("ca", root_.cert());
    options.token_file = files_.Write("tokens", "ada secret\n");
    files_.Write("token", "secret\n");
    auto server = server::Server::Start(options);
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  std::string Flag(const std::string& flag, const std::string& file) const {
    return absl::StrCat(" ", flag, " ", files_.Path(file));
  }
  std::string All() const {
    return absl::StrCat(" --server ", server_->addresses()[0],
                        Flag("--tls-ca", "ca"), Flag("--tls-cert", "cert"),
                        Flag("--tls-key", "key"), Flag("--token-file", "token"),
                        " --tls-server-name posenc.test");
  }

  const test::Directory files_;
  const test::Authority root_{"root"};
  std::unique_ptr<server::Server> server_;
};

TEST_F(SecurityFlagsTest, PosencSpeaksTlsAndShowsItsToken) {
  const Outcome outcome = Posenc("info" + All());
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
}

TEST_F(SecurityFlagsTest, LoadSpeaksTlsAndShowsItsToken) {
  const Outcome outcome = RunCommand(
      POSENC_LOAD_PATH, "--calls 20 --warm-up 0s --size 4KiB" + All());
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
}

TEST_F(SecurityFlagsTest, CallsWithoutThemAreRefused) {
  const std::string server = " --server " + server_->addresses()[0];
  EXPECT_EQ(Posenc("info --timeout 5s" + server).exit_code, 1);
  EXPECT_EQ(Posenc("info --timeout 5s --tls" + server).exit_code, 1);
  const std::string without_token =
      All().substr(0, All().find(" --token-file"));
  const Outcome outcome =
      Posenc("info" + without_token + " --tls-server-name posenc.test");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.text,
              HasSubstr("wants a token; send one header authorization: Bearer "
                        "TOKEN (--token-file)"));
}

TEST_F(SecurityFlagsTest, AHandshakeThatFailsIsOneLine) {
  files_.Write("other", test::Authority("other").cert());
  const Outcome outcome =
      Posenc(absl::StrCat("info --timeout 5s --server ",
                          server_->addresses()[0], Flag("--tls-ca", "other")));
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.text, testing::StartsWith("posenc: UNAVAILABLE: "));
  EXPECT_THAT(outcome.text, HasSubstr(server_->addresses()[0]));
  EXPECT_THAT(outcome.text, HasSubstr("do both trust the certificates?"));
  EXPECT_EQ(std::count(outcome.text.begin(), outcome.text.end(), '\n'), 1)
      << outcome.text;
}

TEST_F(SecurityFlagsTest, BadFilesNameTheirFlagWithExitCode2) {
  files_.Write("garbage", "garbage");
  const std::pair<std::string, const char*> kMistakes[] = {
      {Flag("--tls-ca", "none"), "--tls-ca: "},
      {Flag("--tls-ca", "garbage"), "--tls-ca: "},
      {Flag("--tls-cert", "cert"), "--tls-key: is missing"},
      {Flag("--tls-key", "key"), "--tls-cert: is missing"},
      {Flag("--tls-cert", "cert") + Flag("--tls-key", "garbage"),
       "--tls-key: "},
      {Flag("--tls-cert", "garbage") + Flag("--tls-key", "key"),
       "--tls-cert: "},
      {"--tls" + Flag("--token-file", "none"), "--token-file: "},
      {Flag("--token-file", "token"),
       "--token-file: would be sent in the clear to example.com:1"},
  };
  for (const auto& [flags, error] : kMistakes) {
    const std::string arguments = " --server example.com:1 " + flags;
    const Outcome posenc = Posenc("info" + arguments);
    EXPECT_EQ(posenc.exit_code, 2) << flags;
    EXPECT_THAT(posenc.text, HasSubstr(error));
    const Outcome load = RunCommand(POSENC_LOAD_PATH, arguments);
    EXPECT_EQ(load.exit_code, 2) << flags;
    EXPECT_THAT(load.text, HasSubstr(error));
  }
  const Outcome embedded = Posenc("info" + Flag("--token-file", "token"));
  EXPECT_EQ(embedded.exit_code, 2);
  EXPECT_THAT(embedded.text, HasSubstr("--server: missing"));
}

}  // namespace
}  // namespace posenc::cli
