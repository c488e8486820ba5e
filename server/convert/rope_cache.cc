#include "server/convert/rope_cache.h"

namespace posenc::server {

std::size_t RopeCache::Bytes(const Entry& entry) {
  // The key is stored twice: in the list and in the map.
  return 2 * entry.first.size() + entry.second->bytes();
}

std::shared_ptr<const core::PreparedRope> RopeCache::Find(
    const std::string& key) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = by_key_.find(key);
  ++(found == by_key_.end() ? state_.misses : state_.hits);
  if (found == by_key_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found->second);
  return found->second->second;
}

void RopeCache::Insert(const std::string& key,
                       std::shared_ptr<const core::PreparedRope> rope) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (by_key_.count(key) > 0) return;
  entries_.emplace_front(key, std::move(rope));
  by_key_[key] = entries_.begin();
  state_.bytes += Bytes(entries_.front());
  while (state_.bytes > max_bytes_ && !entries_.empty()) {
    state_.bytes -= Bytes(entries_.back());
    by_key_.erase(entries_.back().first);
    entries_.pop_back();
  }
}

RopeCache::State RopeCache::state() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return state_;
}

}  // namespace posenc::server
