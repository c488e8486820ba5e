#include <optional>

#include "core/relative/check.h"
#include "core/relative/rule.h"

namespace posenc::core {
namespace {

class T5Rule final : public DistanceRule {
 public:
  explicit T5Rule(const T5Bias& t5)
      : bucket_(t5.buckets), weights_(t5.weights) {}

  std::int64_t heads() const override {
    return weights_.has_value() ? weights_->shape[1] : 1;
  }
  bool holds_indices() const override { return !weights_.has_value(); }

 protected:
  void Shared(std::int64_t first, std::int64_t n,
              double* bucket) const override {
    for (std::int64_t s = 0; s < n; ++s) bucket[s] = bucket_(first - s);
  }
  void Head(std::int64_t head, const double* bucket, std::int64_t n,
            double* values) const override {
    for (std::int64_t s = 0; s < n; ++s) {
      const auto row = static_cast<std::int64_t>(bucket[s]);
      values[s] = weights_.has_value()
                      ? ElementAsDouble(*weights_, row * heads() + head)
                      : bucket[s];
    }
  }

 private:
  const T5BucketIndex bucket_;
  const std::optional<ConstTensorView> weights_;  // [num_buckets, heads]
};

}  // namespace

absl::StatusOr<BiasRule> MakeRule(const T5Bias& t5) {
  if (absl::Status valid = ValidateT5(t5.buckets); !valid.ok()) return valid;
  if (t5.weights.has_value()) {
    absl::Status valid = CheckTensor(
        "weights", t5.weights,
        {{"num_buckets", T5BucketIndex(t5.buckets).num_buckets()}, {"heads"}});
    if (!valid.ok()) return valid;
  }
  return std::make_unique<T5Rule>(t5);
}

}  // namespace posenc::core
