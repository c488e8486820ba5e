// The metadata `traceparent` (W3C Trace Context, level 1): which trace a call
// belongs to.

#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"

namespace posenc::server {

struct Traceparent {
  std::array<std::uint8_t, 16> trace_id;
  std::array<std::uint8_t, 8> parent_id;  // of the caller's span
  bool sampled = false;                   // the caller records this trace
};

// Nothing for text that is none, and for ids that are zero, as the
// specification wants. Later versions are read as far as this one goes.
std::optional<Traceparent> ParseTraceparent(absl::string_view text);

// The trace id as its 32 digits in `text`, or "" where ParseTraceparent() has
// nothing.
absl::string_view TraceIdText(absl::string_view text);

}  // namespace posenc::server
