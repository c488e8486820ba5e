#include "server/listen/opening.h"

#include <algorithm>
#include <cstdint>

namespace posenc::server {
namespace {

constexpr absl::string_view kPrefaceBytes = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

// RFC 9113, section 4.1: length (3 bytes), type, flags, stream (4).
constexpr std::size_t kFrameHeader = 9;
constexpr std::uint8_t kHeaders = 1;
constexpr std::uint8_t kSettings = 4;
constexpr std::uint8_t kWindowUpdate = 8;
constexpr std::uint8_t kContinuation = 9;
constexpr std::uint8_t kEndHeaders = 0x4;

}  // namespace

Opening ReadOpening(absl::string_view bytes) {
  const std::size_t compared = std::min(bytes.size(), kPrefaceBytes.size());
  if (bytes.substr(0, compared) != kPrefaceBytes.substr(0, compared)) {
    return Opening::kForeign;
  }
  if (bytes.size() < kPrefaceBytes.size()) return Opening::kPreface;
  if (bytes.size() >= kMostOpeningBytes) return Opening::kCall;
  absl::string_view rest = bytes.substr(kPrefaceBytes.size());
  bool in_headers = false;
  while (!rest.empty()) {
    if (rest.size() < kFrameHeader) return Opening::kPartOfCall;
    const auto byte = [&](std::size_t i) {
      return static_cast<std::uint8_t>(rest[i]);
    };
    const std::size_t length =
        std::size_t{byte(0)} << 16 | byte(1) << 8 | byte(2);
    const std::uint8_t type = byte(3);
    const bool known = in_headers ? type == kContinuation
                                  : type == kHeaders || type == kSettings ||
                                        type == kWindowUpdate;
    if (!known) return Opening::kCall;
    if (type == kHeaders) in_headers = true;
    if (rest.size() < kFrameHeader + length) return Opening::kPartOfCall;
    if (in_headers && (byte(4) & kEndHeaders) != 0) return Opening::kCall;
    rest.remove_prefix(kFrameHeader + length);
  }
  return in_headers ? Opening::kPartOfCall : Opening::kNoCall;
}

}  // namespace posenc::server
