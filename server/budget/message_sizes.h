// How large the messages are that were not announced, by method.

#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace posenc::server {

// Safe for many threads.
class MessageSizes {
 public:
  // No message is taken for smaller: it is what gRPC may receive of a stream
  // anyway.
  static constexpr std::int64_t kLeast = 64 << 10;

  explicit MessageSizes(int methods) : means_(methods) {}

  // What to claim for the next one: twice the mean of the last ones.
  std::int64_t Expect(int method) const {
    return std::max(kLeast, 2 * means_[method].load());
  }

  // A message of so many bytes has come. The mean rises much faster than it
  // falls: claiming too little risks memory, too much only lets others wait.
  void Learn(int method, std::int64_t bytes) {
    const std::int64_t mean = means_[method].load();
    means_[method].store(mean + (bytes - mean) / (bytes > mean ? 2 : 32));
  }

 private:
  std::vector<std::atomic<std::int64_t>> means_;
};

}  // namespace posenc::server
