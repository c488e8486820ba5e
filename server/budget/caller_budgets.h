// What the callers with one token claim of the budget, each token up to a limit
// of its own, so that one tenant cannot hold the memory of all.

#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>

namespace posenc::server {

// Safe for many threads.
class CallerBudgets {
 public:
  // What one call claims of its caller's limit. Gives it back when it goes.
  class Share {
   public:
    // limit: bytes; 0: none, and nothing is counted.
    Share(CallerBudgets* budgets, std::string caller, std::int64_t limit)
        : budgets_(budgets), caller_(std::move(caller)), limit_(limit) {}
    ~Share() { Add(-held_); }
    Share(const Share&) = delete;
    Share& operator=(const Share&) = delete;

    // False, and nothing claimed, if the caller's calls together would exceed
    // the limit. The only call of a caller may.
    bool Claim(std::int64_t bytes);
    // Claims what is in memory already, or gives back (negative).
    void Add(std::int64_t bytes);

    std::int64_t limit() const { return limit_; }

   private:
    CallerBudgets* const budgets_;
    const std::string caller_;
    const std::int64_t limit_;
    std::int64_t held_ = 0;
  };

 private:
  std::mutex mutex_;
  std::map<std::string, std::int64_t> claimed_;  // by caller, if not 0
};

}  // namespace posenc::server
