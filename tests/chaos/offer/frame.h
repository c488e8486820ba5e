// The parts of HTTP/2's frames (RFC 9113) and header compression (RFC 7541)
// that the generator uses: plain literals, and entries of the dynamic table.

#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "absl/strings/string_view.h"

namespace posenc::offer {

enum FrameType {
  kData = 0,
  kHeaders = 1,
  kReset = 3,
  kSettings = 4,
  kPing = 6,
  kGoAway = 7,
  kWindowUpdate = 8,
  kContinuation = 9
};

enum FrameFlag { kEndStream = 1, kAck = 1, kEndHeaders = 4 };

enum Setting {
  kHeaderTableSize = 1,
  kEnablePush = 2,
  kMaxConcurrentStreams = 3,
  kInitialWindow = 4,
  kMaxFrameSize = 5
};

inline constexpr std::size_t kFrameHeaderBytes = 9;

inline std::string U32(std::uint32_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16),
          static_cast<char>(value >> 8), static_cast<char>(value)};
}

// Reads four bytes at `at`, which must exist.
inline std::uint32_t ReadU32(absl::string_view bytes, std::size_t at) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < 4; ++i) {
    value = value << 8 | static_cast<unsigned char>(bytes[at + i]);
  }
  return value;
}

// The nine bytes before a frame's payload.
inline void WriteFrameHeader(std::size_t bytes, int type, int flags,
                             std::uint32_t stream, char* out) {
  const auto byte = [](std::size_t value) { return static_cast<char>(value); };
  const char header[kFrameHeaderBytes] = {
      byte(bytes >> 16),  byte(bytes >> 8),  byte(bytes),
      byte(type),         byte(flags),       byte(stream >> 24),
      byte(stream >> 16), byte(stream >> 8), byte(stream)};
  std::memcpy(out, header, sizeof header);
}
inline std::string FrameHeader(std::size_t bytes, int type, int flags,
                               std::uint32_t stream) {
  std::string header(kFrameHeaderBytes, '\0');
  WriteFrameHeader(bytes, type, flags, stream, header.data());
  return header;
}

inline std::string SettingBytes(int setting, std::uint32_t value) {
  return std::string{'\0', static_cast<char>(setting)} + U32(value);
}

// Encodes a string for header compression, without Huffman codes.
inline std::string HpackString(absl::string_view text) {
  std::string out;
  std::size_t rest = text.size();
  if (rest < 127) {
    out += static_cast<char>(rest);
  } else {
    out += static_cast<char>(127);
    for (rest -= 127; rest >= 128; rest >>= 7) {
      out += static_cast<char>((rest & 127) | 128);
    }
    out += static_cast<char>(rest);
  }
  out.append(text.data(), text.size());
  return out;
}

// HpackIndexing() encodes a header that enters the dynamic table,
// HpackLiteral() a header that does not. The newest entry of the table has the
// index kNewestEntry, the entry before it kNewestEntry + 1, and so on.
inline constexpr int kNewestEntry = 62;
inline std::string HpackIndexing(absl::string_view name,
                                 absl::string_view value) {
  return '\x40' + HpackString(name) + HpackString(value);
}
inline std::string HpackLiteral(absl::string_view name,
                                absl::string_view value) {
  return '\0' + HpackString(name) + HpackString(value);
}
// Encodes a header with the name of the table's entry `index`, 15 to 142.
inline std::string HpackLiteral(int index, absl::string_view value) {
  return '\x0f' + std::string(1, static_cast<char>(index - 15)) +
         HpackString(value);
}

}  // namespace posenc::offer
