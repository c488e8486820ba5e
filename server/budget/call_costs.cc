#include "server/budget/call_costs.h"

#include <algorithm>
#include <cmath>

namespace posenc::server {
namespace {

// Announced bytes from 2^0 to 2^31, and one kind for calls that announce none.
constexpr int kSizes = 32;
constexpr int kUnannounced = kSizes;
constexpr int kKindsOfMethod = kSizes + 1;

// Seconds. A refusal takes 9 to 12 us: a call that costs four times as much is
// worth refusing. Of cheap calls every 16th is measured (Turns), so that it
// seems to have cost what all have that are under way with it, 16 times as
// much; and four times that, if their peers lose patience and gRPC has to end
// them.
constexpr double kCheapShare = 40e-6;
constexpr double kDearShare = 64 * kCheapShare;

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
  return !large && of_[kind].cheap;
}

void CallCosts::Learn(int kind, double measured, std::int64_t moved,
                      bool calm) {
  Cost& cost = of_[kind];
  cost.calls = std::min(cost.calls + 1, kMostCalls);
  cost.log_share +=
      (std::log(std::max(measured, kLeastShare)) - cost.log_share) / cost.calls;
  cost.log_bytes += (std::log(std::max<double>(static_cast<double>(moved), 1)) -
                     cost.log_bytes) /
                    cost.calls;
  if (share(kind) > kDearShare ||
      bytes(kind) > static_cast<double>(kCheapBytes)) {
    cost.cheap = false;
  } else if (calm && share(kind) < kCheapShare) {
    cost.cheap = true;
  }
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
