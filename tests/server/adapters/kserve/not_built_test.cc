// A posencd without KServe's protocol starts, and refuses to switch it on.

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/config/check.h"
#include "server/config/load.h"

namespace posenc::server {
namespace {

TEST(KserveNotBuilt, TheDefaultIsOffAndValid) {
  const Config config;
  EXPECT_FALSE(config.kserve);
  EXPECT_TRUE(CheckConfig(config).ok());
}

TEST(KserveNotBuilt, SwitchingItOnIsRefused) {
  const char* const argv[] = {"posencd", "--kserve"};
  const char* const environment[] = {nullptr};
  const auto loaded = LoadConfig(2, argv, environment);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const absl::Status checked = CheckConfig(loaded->config);
  EXPECT_EQ(checked.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(
      std::string(checked.message()),
      testing::StartsWith("--kserve: this posencd was built without KServe's"));
}

}  // namespace
}  // namespace posenc::server
