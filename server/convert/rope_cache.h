// Keeps resolved encodings, because reading a configuration takes longer than
// rotating a few tokens.

#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

#include "core/rope/prepared_rope.h"

namespace posenc::server {

// Contains at most `max_bytes` bytes. Removes the least recently used encodings
// first. Thread-safe.
class RopeCache {
 public:
  explicit RopeCache(std::size_t max_bytes) : max_bytes_(max_bytes) {}

  // Returns null if the cache does not have the encoding.
  std::shared_ptr<const core::PreparedRope> Find(const std::string& key);
  // Does nothing if the cache has `key`. Equal keys have equal encodings.
  void Insert(const std::string& key,
              std::shared_ptr<const core::PreparedRope> rope);

  struct State {
    std::size_t bytes = 0;
    std::int64_t hits = 0, misses = 0;  // results of Find()
  };
  State state() const;

 private:
  using Entry =
      std::pair<std::string, std::shared_ptr<const core::PreparedRope>>;

  static std::size_t Bytes(const Entry& entry);

  const std::size_t max_bytes_;
  mutable std::mutex mutex_;
  State state_;
  std::list<Entry> entries_;  // the most recently used first
  std::unordered_map<std::string, std::list<Entry>::iterator> by_key_;
};

}  // namespace posenc::server
