#include "server/trace/traceparent.h"

#include <algorithm>
#include <cstddef>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "posenc/compat.h"

namespace posenc::server {
namespace {

// The form is "00-" trace id "-" parent id "-" flags.
constexpr std::size_t kTraceAt = 3, kParentAt = 36, kFlagsAt = 53;
constexpr std::size_t kBytes = 55;
constexpr unsigned char kSampled = 1;

bool IsZero(absl::string_view bytes) {
  return bytes.find_first_not_of('\0') == bytes.npos;
}

}  // namespace

std::optional<Traceparent> ParseTraceparent(absl::string_view text) {
  if (text.size() < kBytes) return std::nullopt;
  for (std::size_t i = 0; i < kBytes; ++i) {
    const bool dash =
        i + 1 == kTraceAt || i + 1 == kParentAt || i + 1 == kFlagsAt;
    const bool digit =
        absl::ascii_isxdigit(text[i]) && !absl::ascii_isupper(text[i]);
    if (dash ? text[i] != '-' : !digit) return std::nullopt;
  }
  const std::string trace = compat::BytesOfHex(text.substr(kTraceAt, 32));
  const std::string parent = compat::BytesOfHex(text.substr(kParentAt, 16));
  if (absl::StartsWith(text, "ff") || IsZero(trace) || IsZero(parent)) {
    return std::nullopt;
  }
  // Version 0 ends here; later versions may have more text after another dash.
  if (text.size() > kBytes &&
      (absl::StartsWith(text, "00") || text[kBytes] != '-')) {
    return std::nullopt;
  }
  const std::string flags = compat::BytesOfHex(text.substr(kFlagsAt, 2));
  Traceparent parsed;
  std::copy(trace.begin(), trace.end(), parsed.trace_id.begin());
  std::copy(parent.begin(), parent.end(), parsed.parent_id.begin());
  parsed.sampled = (flags[0] & kSampled) != 0;
  return parsed;
}

absl::string_view TraceIdText(absl::string_view text) {
  return ParseTraceparent(text).has_value()
             ? text.substr(kTraceAt, kParentAt - 1 - kTraceAt)
             : "";
}

}  // namespace posenc::server
