#include "server/listen/callers.h"

#include <optional>

namespace posenc::server {

Callers::Mark Callers::Add(const Peer& peer) {
  Mark mark = std::make_shared<std::atomic<Calls>>(Calls::kNone);
  Shard& shard = ShardOf(peer);
  const std::lock_guard<std::mutex> lock(shard.mutex);
  shard.marks[peer] = mark;
  return mark;
}

void Callers::Remove(const Peer& peer, const Mark& mark) {
  Shard& shard = ShardOf(peer);
  const std::lock_guard<std::mutex> lock(shard.mutex);
  const auto found = shard.marks.find(peer);
  if (found != shard.marks.end() && found->second == mark) {
    shard.marks.erase(found);
  }
}

void Callers::Raise(absl::string_view text, Calls calls) {
  const std::optional<Peer> peer = Peer::Parse(text);
  if (!peer.has_value()) return;
  Shard& shard = ShardOf(*peer);
  const std::lock_guard<std::mutex> lock(shard.mutex);
  const auto found = shard.marks.find(*peer);
  if (found == shard.marks.end() || *found->second >= calls) return;
  *found->second = calls;
}

}  // namespace posenc::server
