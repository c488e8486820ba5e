// What became of connections, for metrics.

#pragma once

#include <array>
#include <cstdint>

namespace posenc::server {

// Why a connection was ended, or not begun.
enum class Ending {
  kAtCap,         // a newcomer: nobody could be given up for it
  kNoDescriptor,  // a newcomer: the process has no file descriptor left
  kForRoom,       // never began a call, and others came
  kForeign,       // does not speak the protocol
  kHandshakeTimeout,
  kHeadersTimeout,
  kFirstCallTimeout,
  kNotReading,    // takes nothing of what it is sent
  kTooManyCalls,  // has far more calls open than it was told
};
inline constexpr int kEndings = 9;

// "at_cap" and so on, for metrics.
const char* EndingName(Ending ending);

struct ConnectionCounts {
  std::int64_t open = 0;  // now; those that gRPC has closed for up to 1 s
  std::int64_t accepted = 0;
  std::array<std::int64_t, kEndings> ended = {};  // by Ending
};

}  // namespace posenc::server
