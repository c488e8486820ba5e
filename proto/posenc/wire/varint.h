// Lengths and tags as protobuf writes them.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace posenc::wire {

inline std::size_t VarintBytes(std::uint64_t value) {
  std::size_t bytes = 1;
  for (; value >= 0x80; value >>= 7) ++bytes;
  return bytes;
}

inline void AppendVarint(std::uint64_t value, std::string* to) {
  for (; value >= 0x80; value >>= 7) {
    to->push_back(static_cast<char>(value | 0x80));
  }
  to->push_back(static_cast<char>(value));
}

}  // namespace posenc::wire
