#include "server/calls/rope_cache.h"

#include "absl/strings/str_cat.h"
#include "core/model/source.h"
#include "server/convert/rope.h"

namespace posenc::server {

std::size_t RopeCache::Bytes(const Entry& entry) {
  // A frequency stands there as it is and in its three pieces.
  return 2 * entry.first.size() +
         entry.second->rope.inv_freq.size() * 4 * sizeof(double) +
         sizeof(core::PreparedRope) + sizeof(core::PreparedFrequencies);
}

std::shared_ptr<const core::PreparedRope> RopeCache::Find(
    const std::string& key) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto place = places_.find(key);
  if (place == places_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, place->second);
  return place->second->second;
}

void RopeCache::Insert(const std::string& key,
                       std::shared_ptr<const core::PreparedRope> rope) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (places_.count(key) > 0) return;
  entries_.emplace_front(key, std::move(rope));
  places_[key] = entries_.begin();
  bytes_ += Bytes(entries_.front());
  while (bytes_ > max_bytes_ && !entries_.empty()) {
    bytes_ -= Bytes(entries_.back());
    places_.erase(entries_.back().first);
    entries_.pop_back();
  }
}

core::RopeLookup CachedLookup(const v1::RopeSource& source, RopeCache* cache) {
  return [&source, cache](std::int64_t head_dim)
             -> absl::StatusOr<std::shared_ptr<const core::PreparedRope>> {
    const std::string key =
        cache == nullptr
            ? std::string()
            : absl::StrCat(head_dim, ":", source.SerializeAsString());
    if (cache != nullptr) {
      auto rope = cache->Find(key);
      if (rope != nullptr) return rope;
    }
    const absl::StatusOr<core::RopeSource> read = ReadRopeSource(source);
    if (!read.ok()) return read.status();
    absl::StatusOr<core::ResolvedRope> resolved =
        core::ResolveSource(*read, head_dim, core::MissingLength::kError);
    if (!resolved.ok()) return resolved.status();
    auto rope =
        std::make_shared<const core::PreparedRope>(*std::move(resolved));
    if (cache != nullptr) cache->Insert(key, rope);
    return rope;
  };
}

}  // namespace posenc::server
