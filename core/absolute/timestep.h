// Diffusion timestep embeddings (DDPM, arXiv:2006.11239; diffusers' Timesteps).
//
//   w_i = scale * max_period^(-i / (n - downscale_freq_shift)),
//   n = floor(dim/2)
//
// w_i is evaluated in long double and rounded to float64. |w_i| is within
// 2^-900 .. 2^20. Rows have the accuracy of trig_rows.h.

#pragma once

#include "absl/status/status.h"
#include "core/absolute/encoding.h"
#include "core/absolute/trig_rows.h"

namespace posenc::core {

// Errors: dim outside 2 .. 65536, max_period <= 1, scale 0, n equal to the
// shift, a number that is not finite, frequencies out of range.
absl::Status ValidateTimestep(const Timestep& encoding);

// Returns the rows of a validated encoding.
TrigRows TimestepRows(const Timestep& encoding);

}  // namespace posenc::core
