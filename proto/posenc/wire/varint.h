// Protobuf's variable-length encoding of lengths and tags. Each byte has seven
// bits, the lowest first; its highest bit says that another byte follows.
//
//   300 = 0b10'0101100  ->  ac 02    (1|0101100, 0|0000010)

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace posenc::wire {

// Number of bytes that AppendVarint() appends: 1 to 10.
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
