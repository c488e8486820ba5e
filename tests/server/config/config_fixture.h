// Loads a configuration from a test's flags, variables and file.

#pragma once

#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "server/config/load.h"

namespace posenc::server {

class ConfigTest : public testing::Test {
 protected:
  ConfigTest() {
    char name[] = "/tmp/posenc-config-XXXXXX";
    close(mkstemp(name));
    path_ = name;
  }
  ~ConfigTest() override { unlink(path_.c_str()); }

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

  void WriteFile(const std::string& text) {
    std::ofstream(path_, std::ios::trunc) << text;
  }
  absl::StatusOr<LoadedConfig> LoadFile(const std::string& text) {
    WriteFile(text);
    return Load({"--config", path_});
  }

  std::string path_;
};

inline std::string Message(const absl::Status& status) {
  return std::string(status.message());
}

}  // namespace posenc::server
