// The `posenc` command as a process, with a directory for its files.

#pragma once

#include <sys/wait.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "client/check/element.h"
#include "client/cli/file.h"
#include "client/cli/npy.h"
#include "client/cli/safetensors.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/tensor_bytes.h"

namespace posenc::cli {

using Json = nlohmann::json;
using check::ElementAt;
using check::ElementCount;

struct Outcome {
  int exit_code = -1;
  std::string text;  // stdout, then stderr
  Json json() const { return Json::parse(text, nullptr, false); }
};

inline std::string Quoted(const std::string& text) { return "'" + text + "'"; }

// Arguments are given as to a shell.
inline Outcome Posenc(const std::string& arguments) {
  Outcome outcome;
  FILE* const pipe =
      popen((Quoted(POSENC_PATH) + " " + arguments + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return outcome;
  std::array<char, 4096> buffer;
  std::size_t got;
  while ((got = fread(buffer.data(), 1, buffer.size(), pipe)) > 0) {
    outcome.text.append(buffer.data(), got);
  }
  const int status = pclose(pipe);
  outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return outcome;
}

class PosencTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "posenc_cli_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::string Path(const std::string& name) const {
    return directory_ + "/" + name;
  }

  void WriteText(const std::string& name, const std::string& text) const {
    std::ofstream(Path(name), std::ios::binary) << text;
  }

 private:
  std::string directory_;
};

// The elements of a tensor in a file; `name` is empty for .npy.
inline std::vector<double> ReadElements(const std::string& path,
                                        const std::string& name,
                                        std::vector<std::int64_t>* shape) {
  std::vector<double> elements;
  const auto bytes = FileBytes::Read(path);
  EXPECT_TRUE(bytes.ok()) << bytes.status();
  if (!bytes.ok()) return elements;
  TensorView view;
  if (name.empty()) {
    const auto tensor = ParseNpy(bytes->bytes());
    EXPECT_TRUE(tensor.ok()) << tensor.status();
    if (tensor.ok()) view = *tensor;
  } else {
    auto file = ParseSafetensors(bytes->bytes());
    EXPECT_TRUE(file.ok()) << file.status();
    const SafetensorsEntry* entry = file.ok() ? file->Find(name) : nullptr;
    EXPECT_NE(entry, nullptr) << name;
    if (entry != nullptr) view = *AsTensor(*entry);
  }
  if (shape != nullptr) *shape = view.shape;
  for (std::int64_t i = 0; i < ElementCount(view.shape); ++i) {
    elements.push_back(ElementAt(view, i));
  }
  return elements;
}

}  // namespace posenc::cli
