#include "server/budget/call_costs.h"

#include <algorithm>
#include <cmath>

namespace posenc::server {
namespace {

// Announced bytes from 2^0 to 2^31, and one kind for calls that announce none.
constexpr int kSizes = 32;
constexpr int kUnannounced = kSizes;
constexpr int kKindsOfMethod = kSizes + 1;

// Seconds. A refusal takes 9 to 12 us: who costs four times as much is worth
// it. At 14,000 calls a second of 70 us, 1.1 times the capacity, a server that
// took them for cheap (150 us) refused none, and 5,000 came in time; with 40 us
// 12,800 did, and 6,900 instead of 2,900 at 45,000 calls a second.
constexpr double kCheapShare = 40e-6;

constexpr int kMostCalls = 32;

// What is taken for a call of a kind that is not known: seconds, bytes.
constexpr double kGuessedShare = 1e-3;
constexpr double kGuessedBytes = 1 << 20;

// Logarithms need something.
constexpr double kLeastShare = 1e-6;

}  // namespace

CallCosts::CallCosts(int methods)
    : of_(static_cast<std::size_t>(methods) * kKindsOfMethod) {}

int CallCosts::KindOf(int method, std::optional<std::int64_t> announced) {
  int size = kUnannounced;
  if (announced) {
    size = 0;
    while (size < kSizes - 1 && (std::int64_t{1} << size) < *announced) ++size;
  }
  return method * kKindsOfMethod + size;
}

double CallCosts::share(int kind) const {
  return known(kind) ? std::exp(of_[kind].log_share) : kGuessedShare;
}

double CallCosts::bytes(int kind) const {
  return known(kind) ? std::exp(of_[kind].log_bytes) : kGuessedBytes;
}

bool CallCosts::cheap(int kind) const {
  const int size = kind % kKindsOfMethod;
  const bool large =
      size != kUnannounced && (std::int64_t{1} << size) > kCheapBytes;
  return !large && known(kind) && share(kind) < kCheapShare;
}

void CallCosts::Learn(int kind, double share, std::int64_t bytes) {
  Cost& cost = of_[kind];
  cost.calls = std::min(cost.calls + 1, kMostCalls);
  cost.log_share +=
      (std::log(std::max(share, kLeastShare)) - cost.log_share) / cost.calls;
  cost.log_bytes += (std::log(std::max<double>(static_cast<double>(bytes), 1)) -
                     cost.log_bytes) /
                    cost.calls;
}

double CallCosts::ShareOfMethod(int method) const {
  double sum = 0;
  int calls = 0;
  for (int size = 0; size < kKindsOfMethod; ++size) {
    const int kind = method * kKindsOfMethod + size;
    if (!known(kind)) continue;
    sum += share(kind) * of_[kind].calls;
    calls += of_[kind].calls;
  }
  return calls == 0 ? 0 : sum / calls;
}

}  // namespace posenc::server
