// How large the messages are that were not announced, by method and peer.
//
// A peer is expected to send what it has sent before, and one that has not sent
// anything yet what all have sent, but little: enough to be let in beside those
// that wait. If it sends more than there is memory for, it is cut off, and
// expected to send four times as much from then on. (When the mean of all
// counted for everybody, one message of 60 MiB a second and calls that stall in
// turn had a fifth of everybody's small calls fail: each claimed as much as the
// large ones. When it counted for new peers, all their calls failed beside
// others that held the budget.)

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace posenc::server {

// Safe for many threads.
class MessageSizes {
 public:
  // No message is taken for smaller: it is what gRPC may receive of a stream
  // anyway.
  static constexpr std::int64_t kLeast = 64 << 10;
  // Of how many peers and methods the sizes are known; then all are forgotten.
  static constexpr std::size_t kMostKnown = 16384;

  explicit MessageSizes(int methods) : means_(methods) {}

  // What to claim for the next one: twice the mean of the last ones, and no
  // more than `most_new` for the first of a peer.
  std::int64_t Expect(int method, std::uint64_t peer,
                      std::int64_t most_new) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto own = of_peers_.find({method, peer});
    if (own == of_peers_.end()) {
      return std::max(kLeast, std::min(2 * means_[method], most_new));
    }
    return std::max(kLeast, 2 * own->second);
  }

  // There was no memory for a message that seems to be larger than what was
  // claimed for it.
  void LearnMore(int method, std::uint64_t peer, std::int64_t claimed) {
    const std::lock_guard<std::mutex> lock(mutex_);
    Forget();
    std::int64_t& own = of_peers_[{method, peer}];
    own = std::max(own, 2 * claimed);
  }

  // A message of so many bytes has come.
  void Learn(int method, std::uint64_t peer, std::int64_t bytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    Move(&means_[method], bytes);
    Forget();
    const auto [own, fresh] = of_peers_.try_emplace({method, peer}, bytes);
    if (!fresh) Move(&own->second, bytes);
  }

 private:
  // Expects the lock.
  void Forget() {
    if (of_peers_.size() >= kMostKnown) of_peers_.clear();
  }

  // A mean rises much faster than it falls: claiming too little risks memory,
  // too much only lets others wait.
  static void Move(std::int64_t* mean, std::int64_t bytes) {
    *mean += (bytes - *mean) / (bytes > *mean ? 2 : 32);
  }

  mutable std::mutex mutex_;
  std::vector<std::int64_t> means_;
  absl::flat_hash_map<std::pair<int, std::uint64_t>, std::int64_t> of_peers_;
};

}  // namespace posenc::server
