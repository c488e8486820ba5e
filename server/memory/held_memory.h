// Measures the memory that messages use, even without a claim.

#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "absl/time/time.h"
#include "server/memory/heap.h"
#include "server/memory/response_buffers.h"

namespace posenc::server {

// Thread-safe.
class HeldMemory {
 public:
  // `buffers` must outlive this object.
  explicit HeldMemory(const ResponseBuffers* buffers) : buffers_(buffers) {}

  // Returns the heap's growth since the start plus the blocks of responses.
  // Measures at most once in kInterval, because this may take a millisecond.
  std::int64_t Bytes(absl::Time now) {
    const std::int64_t ns = absl::ToUnixNanos(now);
    std::int64_t last = measured_ns_.load();
    // One thread measures; other threads use the last result.
    if (ns - last >= absl::ToInt64Nanoseconds(kInterval) &&
        measured_ns_.compare_exchange_strong(last, ns)) {
      const std::size_t used = UsedMemory();
      bytes_.store(static_cast<std::int64_t>(std::max(used, at_start_) -
                                             at_start_ + buffers_->used()));
    }
    return bytes_.load();
  }

 private:
  static constexpr absl::Duration kInterval = absl::Milliseconds(10);

  const ResponseBuffers* const buffers_;
  const std::size_t at_start_ = UsedMemory();
  std::atomic<std::int64_t> measured_ns_{0};  // time of the last measurement
  std::atomic<std::int64_t> bytes_{0};
};

}  // namespace posenc::server
