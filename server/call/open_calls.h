// Counts the open calls of each connection. A call is open from its headers
// until gRPC has freed it, even if it is refused.
//
// gRPC 1.51 keeps 15 to 25 kB for a call until its status is written, and
// accepts new calls of a peer that reads nothing. HTTP/2's limit of streams
// does not apply to a peer that never acknowledges the settings. A peer that
// sent 65 MiB of headers over one connection and read nothing caused calls that
// took 6 GB within 6 seconds.

#pragma once

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <utility>

#include "absl/container/flat_hash_map.h"

namespace posenc::server {

// Safe for any number of threads. Must outlive its slots.
class OpenCalls {
 public:
  // One open call of a connection, counted until the slot is destroyed. May be
  // empty.
  class Slot {
   public:
    Slot() = default;
    Slot(Slot&& other) noexcept { *this = std::move(other); }
    Slot& operator=(Slot&& other) noexcept {
      std::swap(calls_, other.calls_);
      std::swap(connection_, other.connection_);
      return *this;
    }
    ~Slot() {
      if (calls_ != nullptr) calls_->Close(connection_);
    }

    bool empty() const { return calls_ == nullptr; }

   private:
    friend class OpenCalls;
    OpenCalls* calls_ = nullptr;
    std::uint64_t connection_ = 0;
  };

  // `max_concurrent_streams` is the limit that clients get (ConnectionLimits).
  // The limit here is higher, because a client may begin a call before the
  // server knows that the client's last call has ended.
  explicit OpenCalls(int max_concurrent_streams)
      : most_(2 * max_concurrent_streams + 64) {}

  // Returns an empty slot if the connection has reached its limit of calls. The
  // limit is a fixed number. While kMostInAll calls are open, the limit can be
  // lower: an equal part of kMostInAll for each connection. Sets `*far` to true
  // if the fixed number is reached. A client that respects
  // max_concurrent_streams never reaches this number. `shared` is true if
  // several connections have the same `connection`, as on a unix socket. Then
  // the fixed number is kMostInAll, and `*far` becomes false.
  Slot Open(std::uint64_t connection, bool shared, bool* far) {
    Slot slot;
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto at = by_connection_.try_emplace(connection, 0).first;
    const int fixed = shared ? kMostInAll : most_;
    int most = fixed;
    if (in_all_ >= kMostInAll) {
      const auto connections = static_cast<int>(by_connection_.size());
      most = std::clamp(kMostInAll / connections, 1, fixed);
    }
    *far = !shared && at->second >= fixed;
    if (at->second >= most) return slot;
    ++at->second;
    ++in_all_;
    slot.calls_ = this;
    slot.connection_ = connection;
    return slot;
  }

  // When this many calls are open, each connection may have only an equal part
  // of this number. With 25 kB for each call, the calls take 400 MB.
  static constexpr int kMostInAll = 16384;

 private:
  void Close(std::uint64_t connection) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto at = by_connection_.find(connection);
    --in_all_;
    if (--at->second == 0) by_connection_.erase(at);
  }

  const int most_;
  std::mutex mutex_;
  int in_all_ = 0;                                         // guarded by mutex_
  absl::flat_hash_map<std::uint64_t, int> by_connection_;  // guarded by mutex_
};

}  // namespace posenc::server
