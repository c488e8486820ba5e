// How many calls each connection has open: from their headers until gRPC has
// let go of them, those that are only refused too.
//
// gRPC 1.51 keeps 15 to 25 kB for a call until its status is written, and takes
// new calls of a peer who reads nothing. HTTP/2's limit of streams does not
// hold for a peer who never acknowledges the settings: one connection that sent
// 65 MiB of headers, and read nothing, made 6 GB of calls in 6 seconds.

#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <utility>

#include "absl/container/flat_hash_map.h"

namespace posenc::server {

// Safe for any number of threads. Outlives its places.
class OpenCalls {
 public:
  // A call's place among those of its connection. Empty places are nobody's.
  class Place {
   public:
    Place() = default;
    Place(Place&& other) noexcept { *this = std::move(other); }
    Place& operator=(Place&& other) noexcept {
      std::swap(calls_, other.calls_);
      std::swap(connection_, other.connection_);
      return *this;
    }
    ~Place() {
      if (calls_ != nullptr) calls_->Leave(connection_);
    }

    bool empty() const { return calls_ == nullptr; }

   private:
    friend class OpenCalls;
    OpenCalls* calls_ = nullptr;
    std::uint64_t connection_ = 0;
  };

  // max_concurrent_streams: what clients are told (ConnectionLimits). Those who
  // keep to it may begin a call before we know that the last one has ended.
  explicit OpenCalls(int max_concurrent_streams)
      : most_(2 * max_concurrent_streams + 64) {}

  // Empty if the connection has as many calls as it may: a fixed number, or its
  // share of kMostInAll once there are so many. `far` tells whether it is the
  // fixed number, which no client reaches that keeps to the limit it was told.
  // shared: several connections have this number, as those of a unix socket do;
  // the fixed number is kMostInAll.
  Place Enter(std::uint64_t connection, bool shared, bool* far);

  // Of 25 kB: 400 MB.
  static constexpr int kMostInAll = 16384;

 private:
  void Leave(std::uint64_t connection);

  const int most_;
  std::mutex mutex_;
  int in_all_ = 0;                                         // guarded by mutex_
  absl::flat_hash_map<std::uint64_t, int> by_connection_;  // guarded by mutex_
};

}  // namespace posenc::server
