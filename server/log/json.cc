#include "server/log/json.h"

#include <cstdint>

namespace posenc::server {
namespace {

// Bytes of the UTF-8 character in front of `text`, which is not empty; 0 if
// there is none (Unicode 15, table 3-7: neither overlong forms nor surrogates).
std::size_t CharacterBytes(absl::string_view text) {
  const auto byte = [text](std::size_t i) {
    return static_cast<std::uint8_t>(text[i]);
  };
  const auto continues = [&](std::size_t i, int least, int most) {
    return i < text.size() && byte(i) >= least && byte(i) <= most;
  };
  const int lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead < 0xC2 || lead > 0xF4) return 0;
  if (lead < 0xE0) return continues(1, 0x80, 0xBF) ? 2 : 0;
  if (lead < 0xF0) {
    const int least = lead == 0xE0 ? 0xA0 : 0x80;
    const int most = lead == 0xED ? 0x9F : 0xBF;
    return continues(1, least, most) && continues(2, 0x80, 0xBF) ? 3 : 0;
  }
  const int least = lead == 0xF0 ? 0x90 : 0x80;
  const int most = lead == 0xF4 ? 0x8F : 0xBF;
  return continues(1, least, most) && continues(2, 0x80, 0xBF) &&
                 continues(3, 0x80, 0xBF)
             ? 4
             : 0;
}

void AppendEscape(unsigned code, std::string* out) {
  constexpr char kDigits[] = "0123456789abcdef";
  *out += "\\u00";
  *out += kDigits[code >> 4];
  *out += kDigits[code & 15];
}

}  // namespace

void AppendJsonString(absl::string_view text, std::size_t most_bytes,
                      std::string* out) {
  *out += '"';
  std::size_t used = 0;
  while (used < text.size()) {
    const absl::string_view rest = text.substr(used);
    const std::size_t bytes = CharacterBytes(rest);
    if (used + (bytes == 0 ? 1 : bytes) > most_bytes) {
      *out += "...";
      break;
    }
    used += bytes == 0 ? 1 : bytes;
    const auto lead = static_cast<unsigned char>(rest[0]);
    if (bytes == 0) {
      *out += "\xEF\xBF\xBD";
    } else if (lead == '"' || lead == '\\') {
      *out += '\\';
      *out += rest[0];
    } else if (lead < 0x20 || lead == 0x7F) {
      AppendEscape(lead, out);
    } else if (lead == 0xC2 && static_cast<unsigned char>(rest[1]) < 0xA0) {
      // U+0080 to U+009F, of which terminals make commands.
      AppendEscape(static_cast<unsigned char>(rest[1]), out);
    } else {
      out->append(rest.data(), bytes);
    }
  }
  *out += '"';
}

}  // namespace posenc::server
