// How large the messages are that were not announced, by method and peer.
//
// A peer is expected to send what it has sent before, and one that has not sent
// anything yet what all have sent. (When the mean of all counted for everybody,
// one message of 60 MiB a second and calls that stall in turn had a fifth of
// everybody's small calls fail: each claimed as much as the large ones.)

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

  // What to claim for the next one: twice the mean of the last ones.
  std::int64_t Expect(int method, std::uint64_t peer) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto own = of_peers_.find({method, peer});
    return std::max(
        kLeast, 2 * (own == of_peers_.end() ? means_[method] : own->second));
  }

  // A message of so many bytes has come.
  void Learn(int method, std::uint64_t peer, std::int64_t bytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    Move(&means_[method], bytes);
    if (of_peers_.size() >= kMostKnown) of_peers_.clear();
    const auto [own, fresh] = of_peers_.try_emplace({method, peer}, bytes);
    if (!fresh) Move(&own->second, bytes);
  }

 private:
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
