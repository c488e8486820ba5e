#include "server/budget/caller_budgets.h"

namespace posenc::server {

bool CallerBudgets::Share::Claim(std::int64_t bytes) {
  if (limit_ == 0 || bytes == 0) return true;
  const std::lock_guard<std::mutex> lock(budgets_->mutex_);
  std::int64_t& claimed = budgets_->claimed_[caller_];
  if (claimed > held_ && claimed + bytes > limit_) return false;
  claimed += bytes;
  held_ += bytes;
  return true;
}

void CallerBudgets::Share::Add(std::int64_t bytes) {
  if (limit_ == 0 || bytes == 0) return;
  const std::lock_guard<std::mutex> lock(budgets_->mutex_);
  const auto it = budgets_->claimed_.try_emplace(caller_).first;
  it->second += bytes;
  held_ += bytes;
  if (it->second == 0) budgets_->claimed_.erase(it);
}

}  // namespace posenc::server
