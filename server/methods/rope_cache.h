// Encodings that were resolved before, by the bytes that asked for them: a
// configuration takes longer to read than a few tokens to rotate.

#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

#include "core/rope/apply.h"
#include "core/rope/frequencies.h"
#include "posenc/v1/rope.pb.h"

namespace posenc::server {

// The least recently used go first. Safe for many threads.
class RopeCache {
 public:
  explicit RopeCache(std::size_t max_bytes) : max_bytes_(max_bytes) {}

  // Null: not here.
  std::shared_ptr<const core::PreparedRope> Find(const std::string& key);
  void Insert(const std::string& key,
              std::shared_ptr<const core::PreparedRope> rope);

 private:
  using Entry =
      std::pair<std::string, std::shared_ptr<const core::PreparedRope>>;

  static std::size_t Bytes(const Entry& entry);

  const std::size_t max_bytes_;
  std::mutex mutex_;
  std::size_t bytes_ = 0;
  std::list<Entry> entries_;  // the latest first
  std::unordered_map<std::string, std::list<Entry>::iterator> places_;
};

// Resolves `source`, a checked one, by way of the cache (null: without).
core::RopeLookup CachedLookup(const v1::RopeSource& source, RopeCache* cache);

}  // namespace posenc::server
