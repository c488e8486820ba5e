// Reads recorded cases of data/peers.

#pragma once

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "core/rope/spec.h"
#include "nlohmann/json.hpp"

namespace posenc::test {

inline nlohmann::json LoadJson(const std::filesystem::path& path) {
  std::ifstream file(path);
  return nlohmann::json::parse(file);
}

inline nlohmann::json LoadPeer(const std::string& directory,
                               const std::string& name) {
  return LoadJson(std::string(POSENC_TEST_DATA) + "/peers/" + directory + "/" +
                  name + ".json");
}

// Names of the cases of one kind, sorted.
inline std::vector<std::string> PeerCases(const std::string& directory,
                                          const std::string& kind) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(
           std::string(POSENC_TEST_DATA) + "/peers/" + directory)) {
    if (LoadJson(entry.path()).value("kind", "") == kind) {
      names.push_back(entry.path().stem().string());
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

inline std::vector<float> Floats(const nlohmann::json& list) {
  std::vector<float> values;
  for (const nlohmann::json& value : list) values.push_back(value.get<float>());
  return values;
}

// A tensor of a case: integers times `unit`, or floats.
inline std::vector<float> TensorData(const nlohmann::json& tensor) {
  const double unit = tensor.value("unit", 1.0);
  std::vector<float> values;
  for (const nlohmann::json& value : tensor["data"]) {
    values.push_back(static_cast<float>(value.get<double>() * unit));
  }
  return values;
}

// [axes, tokens]; one row where there is one axis.
inline std::vector<double> PositionsOf(const nlohmann::json& positions) {
  std::vector<double> values;
  for (const nlohmann::json& entry : positions) {
    if (!entry.is_array()) {
      values.push_back(entry.get<double>());
      continue;
    }
    for (const nlohmann::json& value : entry) {
      values.push_back(value.get<double>());
    }
  }
  return values;
}

inline core::Pairing PairingOf(const std::string& name) {
  return name == "interleaved" ? core::Pairing::kInterleaved
                               : core::Pairing::kHalfSplit;
}

// A name that gtest accepts.
inline std::string TestName(std::string name) {
  std::replace_if(
      name.begin(), name.end(),
      [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return name;
}

}  // namespace posenc::test
