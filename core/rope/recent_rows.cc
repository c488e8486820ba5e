#include "core/rope/recent_rows.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

namespace posenc::core {
namespace {

// Bit by bit: fast, and positions that are told apart needlessly, 0 and -0, are
// evaluated needlessly at worst.
bool Same(const TokenPositions& a, const TokenPositions& b) {
  return a.axes() == b.axes() && a.tokens() == b.tokens() &&
         a.values().size() == b.values().size() &&
         std::memcmp(a.values().data(), b.values().data(),
                     a.values().size() * sizeof(double)) == 0;
}

bool Same(const RecentRows::Key& a, const RecentRows::Key& b) {
  return a.wide == b.wide && a.direction == b.direction &&
         a.for_keys == b.for_keys &&
         (a.positions == b.positions || Same(*a.positions, *b.positions));
}

}  // namespace

std::shared_ptr<const CosSinTable> RecentRows::Find(const Key& key) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found =
      std::find_if(entries_.begin(), entries_.end(),
                   [&key](const Entry& entry) { return Same(entry.key, key); });
  if (found == entries_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found);
  return found->rows;
}

std::size_t RecentRows::Entry::bytes() const {
  return rows->bytes() + key.positions->values().size() * sizeof(double);
}

void RecentRows::Keep(Key key, std::shared_ptr<const CosSinTable> rows) {
  std::list<Entry> entry, dropped;  // freed after the lock
  entry.push_back({std::move(key), std::move(rows)});
  if (entry.front().bytes() > kMaxBytes / 2) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  bytes_ += entry.front().bytes();
  entries_.splice(entries_.begin(), entry);
  while (bytes_ > kMaxBytes || entries_.size() > kMaxEntries) {
    bytes_ -= entries_.back().bytes();
    dropped.splice(dropped.begin(), entries_, std::prev(entries_.end()));
  }
}

}  // namespace posenc::core
