// Text that one thread changes and others show.

#pragma once

#include <mutex>
#include <string>
#include <utility>

namespace posenc::server {

// Safe for many threads.
class SharedText {
 public:
  void Set(std::string text) {
    const std::lock_guard<std::mutex> lock(mutex_);
    text_ = std::move(text);
  }
  std::string Get() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return text_;
  }

 private:
  mutable std::mutex mutex_;
  std::string text_;
};

}  // namespace posenc::server
