// Parses the metadata `traceparent` (W3C Trace Context, level 1), which names
// the trace of a call.

#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"

namespace posenc::server {

struct Traceparent {
  std::array<std::uint8_t, 16> trace_id;
  std::array<std::uint8_t, 8> parent_id;  // the caller's span
  bool sampled = false;                   // the caller records this trace
};

// Returns nullopt for malformed text and for ids of zero, as the specification
// requires. Reads the known part of later versions.
std::optional<Traceparent> ParseTraceparent(absl::string_view text);

// Returns the trace id as its 32 digits in `text`, or "" if ParseTraceparent()
// returns nullopt.
absl::string_view TraceIdText(absl::string_view text);

}  // namespace posenc::server
