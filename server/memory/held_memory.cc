#include "server/memory/held_memory.h"

#include <algorithm>

namespace posenc::server {
namespace {

constexpr absl::Duration kInterval = absl::Milliseconds(10);

}  // namespace

std::int64_t HeldMemory::Bytes(absl::Time now) {
  const std::int64_t ns = absl::ToUnixNanos(now);
  std::int64_t last = measured_ns_.load();
  // One thread measures; the others use its last result.
  if (ns - last >= absl::ToInt64Nanoseconds(kInterval) &&
      measured_ns_.compare_exchange_strong(last, ns)) {
    const std::size_t used = UsedMemory();
    bytes_.store(static_cast<std::int64_t>(std::max(used, at_start_) -
                                           at_start_ + buffers_->used()));
  }
  return bytes_.load();
}

}  // namespace posenc::server
