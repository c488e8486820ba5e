// posencd as a process, with TLS and tokens.

#include <signal.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "tests/fixtures/certificates.h"
#include "tests/fixtures/directory.h"
#include "tests/fixtures/eventually.h"
#include "tests/fixtures/posencd.h"

namespace posenc::server {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

using BinarySecurityTest = BinaryTest;

TEST_F(BinarySecurityTest, ProbeSpeaksTls) {
  const test::Directory files;
  const test::Authority root("root"), other("other");
  const test::Identity identity = root.Issue();
  const std::string cert = files.Write("cert", identity.cert);
  const std::string key = files.Write("key", identity.key);
  const std::string ca = files.Write("ca", root.cert());
  const std::string wrong_ca = files.Write("wrong", other.cert());
  Process server({"--listen", "127.0.0.1:0", "--listen", "unix:" + socket(),
                  "--tls-cert", cert, "--tls-key", key, "--tls-client-ca", ca,
                  "--ready-file", ready_file()});
  const std::vector<std::string> addresses = AwaitReady();
  ASSERT_EQ(addresses.size(), 2u);
  const std::vector<std::string> right = {
      "--probe",           addresses[0], "--tls-ca",  ca,
      "--tls-cert",        cert,         "--tls-key", key,
      "--tls-server-name", "posenc.test"};
  // The probe waits for only a second, which may be too short on a busy
  // machine.
  EXPECT_TRUE(test::Eventually([&] {
    Process probe(right);
    return probe.ReadAll().empty() && probe.Wait() == 0;
  }));
  // A probe over a unix socket ignores --tls-ca, which a container may have in
  // its environment.
  EXPECT_TRUE(test::Eventually([&] {
    return Process({"--probe", "unix:" + socket(), "--tls-ca", ca}).Wait() == 0;
  }));
  const char kOfTls[] = "is it TLS, and do both trust the certificates?";
  const std::pair<std::vector<std::string>, const char*> kMistakes[] = {
      {{"--tls-ca", wrong_ca}, kOfTls},
      {{"--tls-ca", ca, "--tls-server-name", "elsewhere.test"}, kOfTls},
      {{}, "is it TLS? then give --tls-ca"},
  };
  for (const auto& [flags, remedy] : kMistakes) {
    std::vector<std::string> arguments = {"--probe", addresses[0]};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    Process refused(arguments);
    EXPECT_THAT(
        refused.ReadLine(),
        AllOf(StartsWith("posencd: " + addresses[0]), HasSubstr(remedy)));
    EXPECT_EQ(refused.ReadAll(), "");
    EXPECT_EQ(refused.Wait(), 1);
  }
  Process missing({"--probe", addresses[0], "--tls-ca", files.Path("none")});
  EXPECT_EQ(missing.ReadAll(),
            absl::StrCat("posencd: --tls-ca: ", files.Path("none"),
                         ": No such file or directory (command line)\n"));
  EXPECT_EQ(missing.Wait(), 2);
  Process alone({"--probe", addresses[0], "--tls-server-name", "posenc.test"});
  EXPECT_THAT(alone.ReadLine(), HasSubstr("of no use without --tls-ca"));
  EXPECT_EQ(alone.Wait(), 2);
}

TEST_F(BinarySecurityTest, ABadCertificateAtSighupHoldsUpNoOtherKey) {
  const test::Directory files;
  const test::Authority root("root");
  const test::Identity identity = root.Issue();
  WriteConfig("max-waiting = 5\n");
  Process process(Flags({"--config", config_file(), "--tls-cert",
                         files.Write("cert", identity.cert), "--tls-key",
                         files.Write("key", identity.key)}));
  ASSERT_EQ(AwaitReady().size(), 1u);
  EXPECT_THAT(process.ReadLine(), HasSubstr("listening on"));
  files.Write("cert", "garbage");
  WriteConfig("max-waiting = 6\n");
  process.Signal(SIGHUP);
  // The server also checks its files by itself, and may notice the change
  // before the signal.
  bool told = false, taken = false;
  for (int i = 0; i < 4 && !(told && taken); ++i) {
    const std::string line = process.ReadLine();
    told = told || line.find("--tls-cert: " + files.Path("cert")) != line.npos;
    taken = taken || line.find("\"max-waiting\":\"5 -> 6\"") != line.npos;
  }
  EXPECT_TRUE(told);
  EXPECT_TRUE(taken);
}

TEST_F(BinarySecurityTest, TokensThatHaveAllExpiredAreAWarningAtStart) {
  const test::Directory files;
  const std::string tokens =
      files.Write("tokens", "eve late expires=2020-01-01T00:00:00Z\n");
  Process process({"--listen", "127.0.0.1:0", "--token-file", tokens});
  EXPECT_THAT(process.ReadLine(),
              AllOf(HasSubstr("\"severity\":\"WARNING\""),
                    HasSubstr("--token-file: " + tokens +
                              ": all tokens have expired")));
  EXPECT_THAT(process.ReadLine(), HasSubstr("listening on"));
}

}  // namespace
}  // namespace posenc::server
