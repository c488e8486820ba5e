#include "server/rpc/open_calls.h"

#include <algorithm>

namespace posenc::server {

OpenCalls::Slot OpenCalls::Open(std::uint64_t connection, bool shared,
                                bool* far) {
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

void OpenCalls::Close(std::uint64_t connection) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto at = by_connection_.find(connection);
  --in_all_;
  if (--at->second == 0) by_connection_.erase(at);
}

}  // namespace posenc::server
