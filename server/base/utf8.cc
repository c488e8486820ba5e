#include "server/base/utf8.h"

namespace posenc::server {
namespace {

// Returns the length of the valid UTF-8 sequence at the start of `text`, or 0
// if the text starts with an invalid sequence.
std::size_t SequenceLength(absl::string_view text) {
  const auto byte = [&](std::size_t i) {
    return static_cast<unsigned char>(text[i]);
  };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t length = first < 0xC2   ? 0
                             : first < 0xE0 ? 2
                             : first < 0xF0 ? 3
                             : first < 0xF5 ? 4
                                            : 0;
  if (length == 0 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  // Rejects overlong forms, surrogates and code points beyond U+10FFFF.
  if (first == 0xE0 && byte(1) < 0xA0) return 0;
  if (first == 0xED && byte(1) >= 0xA0) return 0;
  if (first == 0xF0 && byte(1) < 0x90) return 0;
  if (first == 0xF4 && byte(1) >= 0x90) return 0;
  return length;
}

}  // namespace

std::string Utf8(absl::string_view text, std::size_t limit,
                 absl::string_view instead) {
  std::string out;
  std::size_t whole = 0;  // largest size so far that leaves space for "..."
  while (!text.empty()) {
    const std::size_t length = SequenceLength(text);
    const absl::string_view piece =
        length == 0 ? instead : text.substr(0, length);
    if (out.size() + piece.size() > limit) {
      out.resize(whole);
      return out + "...";
    }
    out.append(piece.data(), piece.size());
    if (out.size() + 3 <= limit) whole = out.size();
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return out;
}

}  // namespace posenc::server
