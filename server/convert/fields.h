// Converts protobuf's fields of plain values to C++ values, for the files of
// this directory.

#pragma once

#include <optional>
#include <vector>

namespace posenc::server {

template <typename Repeated>
auto ToVector(const Repeated& values) {
  return std::vector<typename Repeated::value_type>(values.begin(),
                                                    values.end());
}

template <typename T>
std::optional<T> Optional(bool has, T value) {
  return has ? std::optional<T>(value) : std::nullopt;
}

}  // namespace posenc::server
