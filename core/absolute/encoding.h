// An absolute encoding: one row of dim channels per position.

#pragma once

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "core/base/tensor.h"

namespace posenc::core {

enum class SinusoidalOrder {
  kUnspecified = 0,
  kInterleaved = 1,
  kSinCos = 2,
  kCosSin = 3,
};

// sin and cos of position * w_i (arXiv:1706.03762).
//
//   w_i = base^(-2i/dim), or, with `endpoint`, base^(-i / (n - 1)),
//   n = floor(dim/2), so that the last w is 1/base (tensor2tensor, fairseq)
struct Sinusoidal {
  std::int32_t dim = 0;
  std::optional<double> base;
  SinusoidalOrder order = SinusoidalOrder::kUnspecified;
  bool endpoint = false;
  std::optional<std::int64_t> padding_position;
  bool odd_dim_sine = false;
};

// Rows of a trained table, [rows, dim], and their hierarchical extension
// (learned.h).
struct LearnedTable {
  std::optional<double> hierarchical_alpha;
  std::optional<ConstTensorView> table;
};

// Rows of a grid's cells (grid.h). A grid takes no positions.
struct SincosGrid {
  std::int32_t dim = 0;
  std::vector<std::int32_t> extents;
  std::optional<double> base;
  bool last_axis_first = false;
  std::int32_t leading_zero_rows = 0;
  std::vector<double> steps;
};

// Diffusion timestep embedding (DDPM, arXiv:2006.11239; diffusers' Timesteps):
// sines, then cosines, of p * w_i.
//
//   w_i = scale * max_period^(-i / (n - downscale_freq_shift)),
//   n = floor(dim/2); |w_i| is within 2^-900 .. 2^20
struct Timestep {
  std::int32_t dim = 0;
  std::optional<double> max_period;
  bool cos_first = false;
  std::optional<double> downscale_freq_shift;
  std::optional<double> scale;
};

// Fourier features: sines, then cosines, of 2 pi x B (arXiv:2006.10739). The
// position x has the shape [axes], and the matrix B has the shape [axes, dim /
// 2]. The angle x B is computed in full circles, so no product with 2 pi is
// needed. Elements of B are at most 2^18 in magnitude, and are not rounded. The
// products x[a] * B[a] of all axes a are summed without rounding.
struct FourierFeatures {
  bool cos_first = false;
  std::optional<ConstTensorView> frequencies;
};

// monostate means that no encoding is given, which is an error.
using AbsoluteEncoding = std::variant<std::monostate, Sinusoidal, LearnedTable,
                                      SincosGrid, Timestep, FourierFeatures>;

struct AbsoluteExtents {
  std::int64_t dim = 0;
  // The number of position axes of a token. If there are several axes,
  // positions must be `ids`, which give a coordinate for each axis.
  int axes = 1;
  // The number of a grid's rows; unset for all other encodings.
  std::optional<std::int64_t> rows;
};

// Validates the encoding. Errors name fields such as "sinusoidal.dim" and
// "learned.table.shape". Returns FieldRequired with an empty path if no
// encoding is given.
absl::StatusOr<AbsoluteExtents> ValidateAbsolute(
    const AbsoluteEncoding& encoding);

}  // namespace posenc::core
