// Attention scores that depend on content and on positions. The shapes are
// [B, H, Sq, D] for q, [B, H, Sk, D] for k, and [B, H, Sq, Sk] for the scores.
// The scores are not divided by sqrt(D). D <= 65536.
//
//   Shaw (arXiv:1803.02155, eq. 4)
//     q_i . (k_j + a[clip(j - i, -left, right) + left])
//   Transformer-XL (arXiv:1901.02860, 3.3); -infinity if j > i
//     (q_i + u) . k_j + (q_i + v) . r_(i - j)
//   DeBERTa (arXiv:2006.03654), x = clip(bucket(i - j) + span, 0, 2 span - 1)
//     q_i . k_j + q_i . position_keys[x] + k_j . position_queries[x]
//
// Scores are accumulated in float64 and rounded once to their dtype. Before
// this rounding, the error is at most (D + 4) * 2^-53 * sum |terms|.

#pragma once

#include <cstdint>
#include <optional>
#include <variant>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/tensor.h"
#include "core/relative/buckets.h"

namespace posenc::core {

struct ShawScore {
  std::optional<std::int32_t> left;          // absent: (rows - 1) / 2
  std::optional<ConstTensorView> key_table;  // [rows, D]
};

struct TransformerXlScore {
  std::int64_t clamp_distance = 0;   // 0: not clamped
  std::optional<ConstTensorView> u;  // [H, D]
  std::optional<ConstTensorView> v;  // [H, D]
  std::optional<ConstTensorView> r;  // [H, R, D], distances R - 1 ... 0
};

struct DebertaScore {
  DebertaBuckets buckets;
  bool paper_position_to_content = false;
  std::optional<ConstTensorView> position_keys;     // [H, 2 * span, D]
  std::optional<ConstTensorView> position_queries;  // [H, 2 * span, D]
};

struct ScoreArgs {
  // monostate means that no score is given, which is an error.
  std::variant<std::monostate, ShawScore, TransformerXlScore, DebertaScore>
      score;
  std::int64_t query_start = 0;
  std::int64_t key_start = 0;
  std::optional<Dtype> dtype;  // absent: float64 if q is float64, else float32
};

struct ScoreExtents {
  Dtype dtype = Dtype::kFloat32;
  Shape shape;  // [B, H, Sq, Sk]
};

// Validates everything, and returns the extents of the scores. Errors name
// fields such as "score.shaw.key_table.shape", "q.shape" and "dtype".
absl::StatusOr<ScoreExtents> ValidateScore(const ScoreArgs& args,
                                           const ConstTensorView& q,
                                           const ConstTensorView& k);

// Writes rows [first_row, first_row + rows) of the B * H * Sq rows of the
// scores, for validated arguments; `out` points to row first_row. Calls for 32
// rows or more are fastest; values do not depend on how rows are split into
// calls. `stop` is called for each block of keys; if it returns an error, the
// work ends.
absl::Status FillScores(const ScoreArgs& args, const ConstTensorView& q,
                        const ConstTensorView& k, std::int64_t first_row,
                        std::int64_t rows, Dtype dtype, void* out,
                        absl::FunctionRef<absl::Status()> stop);

}  // namespace posenc::core
