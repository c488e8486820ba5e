// Loads a configuration from a test's flags, variables and file.

#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "server/config/load.h"
#include "tests/fixtures/directory.h"

namespace posenc::server {

class ConfigTest : public testing::Test {
 protected:
  absl::StatusOr<LoadedConfig> Load(
      std::vector<std::string> flags,
      const std::vector<std::string>& environment = {}) {
    flags.insert(flags.begin(), "posencd");
    std::vector<const char*> argv, env;
    for (const std::string& flag : flags) argv.push_back(flag.c_str());
    for (const std::string& entry : environment) env.push_back(entry.c_str());
    env.push_back(nullptr);
    return LoadConfig(static_cast<int>(argv.size()), argv.data(), env.data());
  }

  void WriteFile(const std::string& text) const {
    directory_.Write("posenc.toml", text);
  }
  absl::StatusOr<LoadedConfig> LoadFile(const std::string& text) {
    WriteFile(text);
    return Load({"--config", path_});
  }

  const test::Directory directory_;
  const std::string path_ = directory_.Path("posenc.toml");
};

inline std::string Message(const absl::Status& status) {
  return std::string(status.message());
}

}  // namespace posenc::server
