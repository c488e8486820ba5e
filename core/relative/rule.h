// Evaluates biases: one Rule per formula, made from validated arguments.

#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/relative/bias.h"

namespace posenc::core {

// Stores the values of one bias tile. Rows and columns count from the tile's
// first row and column. The tile may be a part of a larger tensor, hence the
// strides.
struct BiasTileWriter {
  BiasRange tile;
  Dtype dtype;
  bool causal;
  void* out;                // element (head 0, row 0, column 0)
  std::int64_t row_stride;  // elements
  std::int64_t head_stride;

  void* At(std::int64_t head, std::int64_t row, std::int64_t column) const;
  // Writes n values that start at (head, row, column). Masks `values` in place.
  void Put(std::int64_t head, std::int64_t row, std::int64_t column,
           std::int64_t n, double* values) const;
};

class BiasTiles::Rule {
 public:
  virtual ~Rule() = default;
  virtual std::int64_t heads() const = 0;
  virtual bool holds_indices() const { return false; }
  // Returns OUT_OF_RANGE for positions outside the rule.
  virtual absl::Status CheckRange(const BiasRange& range) const;
  // As in BiasTiles.
  virtual std::int64_t Nanoseconds(std::int64_t /*queries*/,
                                   std::int64_t /*keys*/) const {
    return 0;
  }
  virtual void Fill(const BiasTileWriter& writer) const = 0;
};

using BiasRule = std::unique_ptr<const BiasTiles::Rule>;

// A bias that depends only on the distance i - j. It is computed once per
// distance and head; the rows of a tile are this strip, each shifted by one.
class DistanceRule : public BiasTiles::Rule {
 public:
  void Fill(const BiasTileWriter& writer) const final;

 protected:
  // Computes the values that all heads share, for distances first, first - 1,
  // ...; |distance| unless overridden.
  virtual void Shared(std::int64_t first, std::int64_t n, double* shared) const;
  // Computes the bias of one head from the shared values.
  virtual void Head(std::int64_t head, const double* shared, std::int64_t n,
                    double* values) const = 0;
};

// Field paths are relative to each message.
absl::StatusOr<BiasRule> MakeRule(const Alibi& alibi);
absl::StatusOr<BiasRule> MakeRule(const T5Bias& t5);
absl::StatusOr<BiasRule> MakeRule(const Kerple& kerple);
absl::StatusOr<BiasRule> MakeRule(const Fire& fire);
absl::StatusOr<BiasRule> MakeRule(const Sandwich& sandwich);
absl::StatusOr<BiasRule> MakeRule(const RelativeIndex& index);
absl::StatusOr<BiasRule> MakeRule(const UntiedPositions& untied);

// Implements CheckRange() for positions 0 .. count - 1; `what` names them.
absl::Status CheckInside(const BiasRange& range, std::int64_t count,
                         absl::string_view what);

}  // namespace posenc::core
