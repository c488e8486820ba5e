#include "core/base/status_macros.h"
#include "core/relative/check.h"
#include "core/relative/rule.h"

namespace posenc::core {

absl::StatusOr<BiasRule> MakeRule(const T5Bias& t5) {
  RETURN_IF_ERROR(ValidateT5(t5.buckets));
  const T5BucketIndex bucket(t5.buckets);
  if (!t5.weights.has_value()) return IndexRule(bucket);
  RETURN_IF_ERROR(
      CheckTensor("weights", t5.weights,
                  {{"num_buckets", bucket.num_buckets()}, {"heads"}}));
  const ConstTensorView weights = *t5.weights;  // [num_buckets, heads]
  const auto of_head = [weights](std::int64_t head, const double* buckets,
                                 std::int64_t n, double* values) {
    for (std::int64_t s = 0; s < n; ++s) {
      const auto row = static_cast<std::int64_t>(buckets[s]);
      values[s] = ElementAsDouble(weights, row * weights.shape[1] + head);
    }
  };
  const auto shared = [bucket](std::int64_t first, std::int64_t n,
                               double* buckets) {
    for (std::int64_t s = 0; s < n; ++s) buckets[s] = bucket(first - s);
  };
  return DistanceRule({weights.shape[1], of_head, shared});
}

}  // namespace posenc::core
