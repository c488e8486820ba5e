// How long calls have waited in their sockets before they were read: gRPC does
// not say, and counts their deadlines from the reading.
//
// All connections that have something to read are read in turn. So a call came
// after those that were taken together from its connection before it, and
// waited at most while calls were taken from others:
//
//   A A A A A A  B B B B B B B  C C C C C  A ...
//             |<-------- gap ----------->|
//
// A gap after few calls may be their caller's; and since another caller may
// pause as well, the shortest gap counts. Calls that all come over one
// connection are not seen to wait.

#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

namespace posenc::server {

// Not safe for many threads: for the only one that takes calls.
class SocketWaits {
 public:
  using Clock = std::chrono::steady_clock;

  explicit SocketWaits(Clock::time_point now) : caught_up_(now) {}

  // A call of this peer (CallHeaders::peer_id()) is taken. How long it may have
  // waited.
  Clock::duration Take(std::uint64_t peer, Clock::time_point now);

  // There was nothing in the sockets.
  void CatchUp(Clock::time_point now);
  // When that was the last time.
  Clock::time_point caught_up() const { return caught_up_; }

 private:
  // Calls of one connection that were taken one after the other.
  struct Group {
    std::uint64_t peer = 0;
    Clock::time_point behind_since{}, last{};
    int calls = 0;
  };

  Clock::time_point caught_up_;
  std::vector<Group> groups_{1024};  // by the peer
  std::uint64_t last_peer_ = 0;
  // The shortest gap, and when it was seen.
  Clock::duration gap_{0};
  Clock::time_point gap_seen_{};
};

}  // namespace posenc::server
