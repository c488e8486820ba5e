// An absolute encoding: one row of dim channels per position.

#pragma once

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/absolute/sinusoidal.h"
#include "core/base/tensor.h"
#include "core/positions/positions.h"

namespace posenc::core {

// Rows of a trained table, [rows, dim]. hierarchical_alpha extends the table to
// rows^2 positions (Su, kexue.fm/archives/7947): position i * rows + j gets
// alpha * u_i + (1 - alpha) * u_j, u_i = (row_i - alpha * row_0) / (1 - alpha).
struct LearnedTable {
  std::optional<double> hierarchical_alpha;
  std::optional<ConstTensorView> table;
};

// Rows of a grid's cells, row-major (MAE, arXiv:2111.06377): each axis has
// dim / axes channels, which are a Sinusoidal in SIN_COS order. A grid takes no
// positions.
struct SincosGrid {
  std::int32_t dim = 0;
  std::vector<std::int32_t> extents;
  std::optional<double> base;
  bool last_axis_first = false;
  std::int32_t leading_zero_rows = 0;
  std::vector<double> steps;
};

// Diffusion timestep embedding: sines, then cosines, of
// scale * p * max_period^(-i / (n - downscale_freq_shift)), n = floor(dim/2).
struct Timestep {
  std::int32_t dim = 0;
  std::optional<double> max_period;
  bool cos_first = false;
  std::optional<double> downscale_freq_shift;
  std::optional<double> scale;
};

// sin and cos of 2 pi x B (arXiv:2006.10739) for the position x; B has the
// shape [axes, dim / 2].
struct FourierFeatures {
  bool cos_first = false;
  std::optional<ConstTensorView> frequencies;
};

// monostate: no encoding is given, which is an error.
using AbsoluteEncoding = std::variant<std::monostate, Sinusoidal, LearnedTable,
                                      SincosGrid, Timestep, FourierFeatures>;

struct AbsoluteExtents {
  std::int64_t dim = 0;
  // The number of position axes of a token. If there are several axes,
  // positions must be ids, which are coordinates.
  int axes = 1;
  // The number of a grid's rows; a grid takes no positions.
  std::optional<std::int64_t> rows;
};

// Validates the encoding. Field paths: "sinusoidal.dim", "learned.table.shape",
// "timestep.downscale_freq_shift", ...; FieldRequired with an empty path if no
// encoding is given.
absl::StatusOr<AbsoluteExtents> ValidateAbsolute(
    const AbsoluteEncoding& encoding);

// Fills `table` from a validated encoding. The table is [rows, dim], of any
// floating dtype. `positions` is null for a grid. Sines and cosines have the
// accuracy of trig_rows.h. Rows of trained tables are copied if the dtypes
// agree. Hierarchical rows are computed in float64. All values are rounded once
// to the table's dtype. Returns OUT_OF_RANGE kPositionOutOfRange ("positions",
// metadata index) if a position has no row in a trained table, because it is
// fractional or outside the table.
absl::Status BuildAbsolute(const AbsoluteEncoding& encoding,
                           const TokenPositions* positions,
                           const TensorView& table);

}  // namespace posenc::core
