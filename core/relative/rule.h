// Evaluates biases. Each formula has its own Rule.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <variant>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/relative/bias.h"

namespace posenc::core {

// Stores the values of one bias tile. Rows and columns are counted from the
// tile's first row and column. The tile may be a part of a larger tensor, so it
// has strides.
struct BiasTileWriter {
  BiasRange tile;
  Dtype dtype;
  bool causal;
  void* out;                // element (head 0, row 0, column 0)
  std::int64_t row_stride;  // elements
  std::int64_t head_stride;

  void* At(std::int64_t head, std::int64_t row, std::int64_t column) const;
  // Writes n values that start at (head, row, column). If `causal`, masks
  // `values` in place first.
  void Put(std::int64_t head, std::int64_t row, std::int64_t column,
           std::int64_t n, double* values) const;
};

class BiasTiles::Rule {
 public:
  explicit Rule(std::int64_t heads, bool holds_indices = false)
      : heads_(heads), holds_indices_(holds_indices) {}
  virtual ~Rule() = default;
  std::int64_t heads() const { return heads_; }
  bool holds_indices() const { return holds_indices_; }
  // Returns OUT_OF_RANGE for positions that the rule does not cover.
  virtual absl::Status CheckRange(const BiasRange& /*range*/) const {
    return absl::OkStatus();
  }
  // See BiasTiles::Nanoseconds().
  virtual std::int64_t Nanoseconds(std::int64_t /*queries*/,
                                   std::int64_t /*keys*/) const {
    return 0;
  }
  virtual void Fill(const BiasTileWriter& writer) const = 0;

 private:
  const std::int64_t heads_;
  const bool holds_indices_;
};

using BiasRule = std::shared_ptr<const BiasTiles::Rule>;

// Sets the values to |distance|.
void Magnitudes(std::int64_t first, std::int64_t n, double* magnitudes);

// The parts of a bias that depends only on the distance i - j. A strip of
// values, one for each distance, is computed once per head. Each row of a tile
// is a part of this strip, shifted by one against the next row.
struct DistanceValues {
  std::int64_t heads = 1;
  // Computes the bias of one head from the n values that all heads share.
  std::function<void(std::int64_t head, const double* shared, std::int64_t n,
                     double* values)>
      head;
  // Computes the values that all heads share, for distances first, first - 1,
  // ...
  std::function<void(std::int64_t first, std::int64_t n, double* shared)>
      shared = Magnitudes;
  std::int64_t nanoseconds = 0;  // time of `shared` for one distance
};
BiasRule DistanceRule(DistanceValues values);

// Returns the rule for indices that depend only on the distance i - j.
BiasRule IndexRule(std::function<std::int64_t(std::int64_t distance)> index);

// Return the rule of a bias, or an error. Errors name fields relative to the
// bias's message.
absl::StatusOr<BiasRule> MakeRule(std::monostate);
absl::StatusOr<BiasRule> MakeRule(const Alibi& alibi);
absl::StatusOr<BiasRule> MakeRule(const T5Bias& t5);
absl::StatusOr<BiasRule> MakeRule(const Kerple& kerple);
absl::StatusOr<BiasRule> MakeRule(const Fire& fire);
absl::StatusOr<BiasRule> MakeRule(const Sandwich& sandwich);
absl::StatusOr<BiasRule> MakeRule(const RelativeIndex& index);
absl::StatusOr<BiasRule> MakeRule(const UntiedPositions& untied);

// Implements CheckRange() for positions 0 .. count - 1. Errors use `what` as
// the name of the object that has these positions.
absl::Status CheckInside(const BiasRange& range, std::int64_t count,
                         absl::string_view what);

}  // namespace posenc::core
