#include "server/rpc/socket_waits.h"

namespace posenc::server {
namespace {

// So many calls of one connection, with none of another between them, have
// waited for being read.
constexpr int kReadTogether = 5;

// How long the shortest gap that was seen is believed.
constexpr std::chrono::milliseconds kGapHolds{100};

}  // namespace

SocketWaits::Clock::duration SocketWaits::Take(std::uint64_t peer,
                                               Clock::time_point now) {
  Group& group = groups_[peer % groups_.size()];
  if (group.peer != peer || group.behind_since != caught_up_) {
    group = {peer, caught_up_, now, 0};
  } else if (peer != last_peer_) {
    const Clock::duration gap = now - group.last;
    if (group.calls >= kReadTogether &&
        (gap < gap_ || now - gap_seen_ > kGapHolds)) {
      gap_ = gap;
      gap_seen_ = now;
    }
    group.calls = 0;
  }
  last_peer_ = peer;
  ++group.calls;
  group.last = now;
  return now - gap_seen_ > kGapHolds ? Clock::duration(0) : gap_;
}

void SocketWaits::CatchUp(Clock::time_point now) {
  caught_up_ = now;
  gap_ = Clock::duration(0);
  gap_seen_ = Clock::time_point();
}

}  // namespace posenc::server
