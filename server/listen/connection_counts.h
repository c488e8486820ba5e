// What became of connections, for metrics.

#pragma once

#include <array>
#include <cstdint>

namespace posenc::server {

// Why the listener ended a connection, or did not begin it.
enum class Ending {
  kAtCap,         // a newcomer: all places are taken
  kNoDescriptor,  // a newcomer: the process has no file descriptor left
  kNotReading,    // takes nothing of what it is sent
  kTooManyCalls,  // has far more calls open than it was told
};
inline constexpr int kEndings = 4;

// "at_cap" and so on, for metrics.
inline constexpr const char* kEndingNames[kEndings] = {
    "at_cap", "no_descriptor", "not_reading", "too_many_calls"};

struct ConnectionCounts {
  std::int64_t open = 0;  // now
  std::int64_t accepted = 0;
  std::array<std::int64_t, kEndings> ended = {};  // by Ending
};

}  // namespace posenc::server
