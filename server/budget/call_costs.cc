#include "server/budget/call_costs.h"

#include <algorithm>

namespace posenc::server {
namespace {

// Announced bytes from 2^0 to 2^31, and one kind for calls that announce none.
constexpr int kSizes = 32;
constexpr int kUnannounced = kSizes;
constexpr int kKindsOfMethod = kSizes + 1;

// Seconds. A refusal costs gRPC itself 16 to 30 us, and the client its retry.
constexpr double kCheapShare = 150e-6;

constexpr int kMostCalls = 32;

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

bool CallCosts::cheap(int kind) const {
  const int size = kind % kKindsOfMethod;
  const bool large =
      size != kUnannounced && (std::int64_t{1} << size) > kCheapBytes;
  return !large && known(kind) && of_[kind].share < kCheapShare;
}

void CallCosts::Learn(int kind, double share, std::int64_t bytes) {
  Cost& cost = of_[kind];
  cost.calls = std::min(cost.calls + 1, kMostCalls);
  cost.share += (share - cost.share) / cost.calls;
  cost.bytes += (static_cast<double>(bytes) - cost.bytes) / cost.calls;
}

double CallCosts::ShareOfMethod(int method) const {
  double sum = 0;
  int calls = 0;
  for (int size = 0; size < kKindsOfMethod; ++size) {
    const Cost& cost = of_[method * kKindsOfMethod + size];
    sum += cost.share * cost.calls;
    calls += cost.calls;
  }
  return calls == 0 ? 0 : sum / calls;
}

}  // namespace posenc::server
