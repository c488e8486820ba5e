// Diffusion timestep embeddings (DDPM, arXiv:2006.11239; diffusers' Timesteps).
//
//   w_i = scale * max_period^(-i / (n - downscale_freq_shift)),
//   n = floor(dim/2)
//
// w_i is the float64 nearest to the formula in long double, |w_i| within
// 2^-900 .. 2^20; rows are as exact as trig_rows.h says.

#pragma once

#include "absl/status/status.h"
#include "core/absolute/encoding.h"
#include "core/absolute/trig_rows.h"

namespace posenc::core {

// Errors: dim outside 2 .. 2^20, max_period <= 1, scale 0, n equal to the
// shift, anything not finite, frequencies out of range.
absl::Status ValidateTimestep(const Timestep& encoding);

// Returns the rows of a validated encoding.
TrigRows TimestepRows(const Timestep& encoding);

}  // namespace posenc::core
