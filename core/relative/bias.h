// Additive attention biases that depend only on query and key positions. Biases
// are computed in bias tiles, which are rectangles of the bias matrix. i is the
// position of a query, and j the position of a key. The messages of posenc.v1
// relative.proto have the formulas.
//
// Values are computed in float64 and rounded once to the tile's dtype; bucket
// boundaries are exact integers, never rounded logarithms.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/tensor.h"
#include "core/relative/buckets.h"

namespace posenc::core {

// Linear bias (arXiv:2108.12409): -slope[h] * |i - j|.
struct Alibi {
  std::int32_t heads = 0;
  std::optional<double> max_bias;
  std::vector<double> slopes;
};

// Bucketed relative positions (T5, arXiv:1910.10683).
struct T5Bias {
  T5Buckets buckets;
  std::optional<ConstTensorView> weights;  // [num_buckets, heads]
};

enum class KerpleKernel { kUnspecified = 0, kLogarithmic = 1, kPower = 2 };

// Kernelized relative positions (arXiv:2205.09921).
struct Kerple {
  KerpleKernel kernel = KerpleKernel::kUnspecified;
  std::vector<double> r1;
  std::vector<double> r2;
};

// FIRE (arXiv:2310.04418).
struct Fire {
  double c = 0;
  double threshold = 0;
  double epsilon = 0;
  std::optional<ConstTensorView> w1;  // [hidden, 1]
  std::optional<ConstTensorView> b1;  // [hidden]
  std::optional<ConstTensorView> w2;  // [heads, hidden]
  std::optional<ConstTensorView> b2;  // [heads]
};

// Sandwich (arXiv:2212.10356).
struct Sandwich {
  std::int32_t heads = 0;
  std::int32_t dim = 0;
};

// Relative indices, in int32 tiles of one head. The caller uses these indices
// for lookups.
struct RelativeIndex {
  std::variant<std::monostate, ClippedDistance, DebertaBuckets, GridIndex> rule;
};

// TUPE's untied position term (arXiv:2006.15595).
struct UntiedPositions {
  std::optional<double> scale;
  std::optional<ConstTensorView> position_queries;  // [heads, rows, D]
  std::optional<ConstTensorView> position_keys;     // [heads, rows, D]
};

// monostate means that no bias is given, which is an error.
using Bias = std::variant<std::monostate, Alibi, T5Bias, Kerple, Fire, Sandwich,
                          RelativeIndex, UntiedPositions>;

// A rectangle of the bias matrix, in positions.
struct BiasRange {
  std::int64_t query_start = 0;
  std::int64_t query_length = 0;
  std::int64_t key_start = 0;
  std::int64_t key_length = 0;
};

struct BiasArgs {
  Bias bias;
  BiasRange range;
  std::optional<Dtype> dtype;  // absent: float32, or int32 for indices
  bool causal = false;         // -infinity if j > i
};

// A validated bias, ready to be evaluated tile by tile. BiasTiles borrows the
// tensors of its arguments. Many threads may use one object at the same time.
class BiasTiles {
 public:
  // Errors name fields such as "bias.alibi.heads", "query_length" and "causal".
  // Returns OUT_OF_RANGE for positions past the rows of untied_positions or the
  // cells of a grid.
  static absl::StatusOr<BiasTiles> Create(const BiasArgs& args);

  std::int64_t heads() const;
  Dtype dtype() const;
  // Returns roughly how long a tile of these extents takes, without the time
  // for storing its elements. Callers use this to choose tiles and threads.
  std::int64_t Nanoseconds(std::int64_t queries, std::int64_t keys) const;
  // Writes the values of a tile, [heads, tile.query_length, tile.key_length],
  // in dtype(). The tile must be inside the range of the arguments. `out`
  // points to the tile's first element. The strides are the numbers of elements
  // from one row to the next row, and from one head to the next head.
  void Fill(const BiasRange& tile, void* out, std::int64_t row_stride,
            std::int64_t head_stride) const;

  class Rule;

 private:
  BiasTiles(std::shared_ptr<const Rule> rule, Dtype dtype, bool causal);

  std::shared_ptr<const Rule> rule_;
  Dtype dtype_;
  bool causal_;
};

}  // namespace posenc::core
