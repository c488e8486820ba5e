// posenc-load in KServe's protocol.

#include <unistd.h>

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/kserve/kserve_service.h"
#include "tests/fixtures/load_command.h"

namespace posenc::load {
namespace {

TEST(LoadKserveTest, KservesProtocolIsVerified) {
  const std::string address = absl::StrCat(
      "unix:", testing::TempDir(), "posenc-load-kserve-", getpid(), ".sock");
  server::ServerOptions options;
  options.listen = {address};
  options.extra_services = {*server::KserveService()};
  const auto server = server::Server::Start(options);
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string start = absl::StrCat(
      "--server ", address, " --warm-up 0s --timeout 60s --protocol kserve ");
  const Outcome run =
      RunLoad(start +
              "--calls 100 --in-flight 4 --verify 1 "
              "--dtype float32,float16 --size 4KiB,64KiB --variants 2 "
              "--mix ApplyRope,Reposition,AddEncoding,BuildTable,ResolveRope");
  EXPECT_EQ(run.exit_code, 0) << run.out;
  EXPECT_THAT(run.out, testing::HasSubstr(
                           "100 answers compared bit for bit, 0 differ\n"));
  const Outcome both = RunLoad(start + "--shared-memory");
  EXPECT_EQ(both.exit_code, 2);
}

}  // namespace
}  // namespace posenc::load
