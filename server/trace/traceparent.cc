#include "server/trace/traceparent.h"

#include <algorithm>
#include <cstddef>

namespace posenc::server {
namespace {

// The form is "00-" trace id "-" parent id "-" flags.
constexpr std::size_t kTraceAt = 3, kParentAt = 36, kFlagsAt = 53;
constexpr std::size_t kBytes = 55;
constexpr std::uint8_t kSampled = 1;

// Parses a hexadecimal digit in lower case. Nothing for other characters.
std::optional<std::uint8_t> Digit(char c) {
  if (c >= '0' && c <= '9') return static_cast<std::uint8_t>(c - '0');
  if (c >= 'a' && c <= 'f') return static_cast<std::uint8_t>(c - 'a' + 10);
  return std::nullopt;
}

template <std::size_t size>
std::optional<std::array<std::uint8_t, size>> ReadHex(absl::string_view text) {
  std::array<std::uint8_t, size> bytes;
  for (std::size_t i = 0; i < size; ++i) {
    const auto high = Digit(text[2 * i]), low = Digit(text[2 * i + 1]);
    if (!high || !low) return std::nullopt;
    bytes[i] = static_cast<std::uint8_t>(*high << 4 | *low);
  }
  return bytes;
}

template <std::size_t size>
bool IsZero(const std::array<std::uint8_t, size>& bytes) {
  return std::all_of(bytes.begin(), bytes.end(),
                     [](std::uint8_t byte) { return byte == 0; });
}

}  // namespace

std::optional<Traceparent> ParseTraceparent(absl::string_view text) {
  if (text.size() < kBytes || text[kTraceAt - 1] != '-' ||
      text[kParentAt - 1] != '-' || text[kFlagsAt - 1] != '-') {
    return std::nullopt;
  }
  const auto version = ReadHex<1>(text);
  const auto trace_id = ReadHex<16>(text.substr(kTraceAt));
  const auto parent_id = ReadHex<8>(text.substr(kParentAt));
  const auto flags = ReadHex<1>(text.substr(kFlagsAt));
  if (!version || !trace_id || !parent_id || !flags) return std::nullopt;
  if ((*version)[0] == 0xff || IsZero(*trace_id) || IsZero(*parent_id)) {
    return std::nullopt;
  }
  // Version 0 ends here; later versions may have more after another dash.
  if (text.size() > kBytes && ((*version)[0] == 0 || text[kBytes] != '-')) {
    return std::nullopt;
  }
  return Traceparent{*trace_id, *parent_id, ((*flags)[0] & kSampled) != 0};
}

absl::string_view TraceIdText(absl::string_view text) {
  return ParseTraceparent(text).has_value()
             ? text.substr(kTraceAt, kParentAt - 1 - kTraceAt)
             : "";
}

}  // namespace posenc::server
