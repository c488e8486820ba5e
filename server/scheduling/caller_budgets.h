// Limits the bytes of the budget that all calls of one caller (one token name)
// claim together, so that one tenant cannot hold all memory.

#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>

namespace posenc::server {

// Thread-safe.
class CallerBudgets {
 public:
  // One call's claim within its caller's limit. The destructor releases it.
  class Share {
   public:
    // `limit` is in bytes. If it is 0, there is no limit, and nothing is
    // counted.
    Share(CallerBudgets* budgets, std::string caller, std::int64_t limit)
        : budgets_(budgets), caller_(std::move(caller)), limit_(limit) {}
    ~Share() { Clear(); }
    Share(const Share&) = delete;
    Share& operator=(const Share&) = delete;

    // Returns false, and claims nothing, if the caller's calls together would
    // exceed the limit. A call may exceed the limit if no other call of its
    // caller has claimed bytes.
    bool Claim(std::int64_t bytes) {
      if (limit_ == 0 || bytes == 0) return true;
      const std::lock_guard<std::mutex> lock(budgets_->mutex_);
      std::int64_t& claimed = budgets_->claimed_[caller_];
      if (claimed > held_ && claimed + bytes > limit_) return false;
      claimed += bytes;
      held_ += bytes;
      return true;
    }
    // Claims `bytes` that are already in memory, even beyond the limit. A
    // negative number releases bytes.
    void Add(std::int64_t bytes) {
      if (limit_ == 0 || bytes == 0) return;
      const std::lock_guard<std::mutex> lock(budgets_->mutex_);
      const auto it = budgets_->claimed_.try_emplace(caller_).first;
      it->second += bytes;
      held_ += bytes;
      if (it->second == 0) budgets_->claimed_.erase(it);
    }

    void Clear() { Add(-held_); }

    std::int64_t limit() const { return limit_; }

   private:
    CallerBudgets* const budgets_;
    const std::string caller_;
    const std::int64_t limit_;
    std::int64_t held_ = 0;
  };

 private:
  std::mutex mutex_;
  std::map<std::string, std::int64_t> claimed_;  // by caller; never 0
};

}  // namespace posenc::server
