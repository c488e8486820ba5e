// Measures the memory that messages hold, whether or not it was claimed.

#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "absl/time/time.h"
#include "server/memory/heap.h"
#include "server/memory/response_buffers.h"

namespace posenc::server {

// Safe for many threads.
class HeldMemory {
 public:
  // buffers: outlives this.
  explicit HeldMemory(const ResponseBuffers* buffers) : buffers_(buffers) {}

  // Returns the heap's growth since the start plus the blocks of responses.
  // Measures at most every 10 ms, because that may take a millisecond.
  std::int64_t Bytes(absl::Time now);

 private:
  const ResponseBuffers* const buffers_;
  const std::size_t at_start_ = UsedMemory();
  std::atomic<std::int64_t> measured_ns_{0};  // time of the last measurement
  std::atomic<std::int64_t> bytes_{0};
};

}  // namespace posenc::server
