#include <vector>

#include "core/relative/check.h"
#include "core/relative/elements.h"
#include "core/relative/rule.h"

namespace posenc::core {
namespace {

class T5Rule final : public DistanceRule {
 public:
  explicit T5Rule(const T5Bias& t5) : bucket_(t5.buckets) {
    if (!t5.weights.has_value()) return;
    heads_ = t5.weights->shape[1];
    const std::int64_t count = bucket_.num_buckets();
    std::vector<double> rows(count * heads_);
    LoadDoubles(*t5.weights, 0, count * heads_, rows.data());
    // Transposed, [heads, num_buckets].
    weights_.resize(rows.size());
    for (std::int64_t b = 0; b < count; ++b) {
      for (std::int64_t h = 0; h < heads_; ++h) {
        weights_[h * count + b] = rows[b * heads_ + h];
      }
    }
  }

  std::int64_t heads() const override { return heads_; }
  bool holds_indices() const override { return weights_.empty(); }

 protected:
  void Shared(std::int64_t first, std::int64_t n,
              double* bucket) const override {
    for (std::int64_t s = 0; s < n; ++s) bucket[s] = bucket_(first - s);
  }
  void Head(std::int64_t head, const double* bucket, std::int64_t n,
            double* values) const override {
    for (std::int64_t s = 0; s < n; ++s) {
      values[s] = weights_.empty()
                      ? bucket[s]
                      : weights_[head * bucket_.num_buckets() +
                                 static_cast<std::int64_t>(bucket[s])];
    }
  }

 private:
  const T5BucketIndex bucket_;
  std::int64_t heads_ = 1;
  std::vector<double> weights_;
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
