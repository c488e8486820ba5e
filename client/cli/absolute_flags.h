// The flags that describe a posenc.v1.AbsoluteEncoding. `table` prints its rows
// and `add` adds them to embeddings.

#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "posenc/client.h"

namespace posenc::cli {

// The five kinds. The first field of exactly one of them has a value. A
// field of the contract that is unset keeps the contract's default, hence the
// optional numbers.
struct AbsoluteFlags {
  // Sinusoidal: its width in channels.
  std::optional<std::int32_t> sinusoidal;
  std::string order;
  std::optional<double> base;  // of a grid too
  bool endpoint = false;
  std::optional<std::int64_t> padding_position;
  bool odd_dim_sine = false;

  // A trained table: the file that holds it.
  std::string learned;
  std::optional<double> hierarchical_alpha;

  // Cells of an image: the width in channels.
  std::optional<std::int32_t> sincos_grid;
  std::string extents;
  bool last_axis_first = false;
  std::int32_t leading_zero_rows = 0;
  std::string steps;

  // Diffusion timesteps: the width in channels.
  std::optional<std::int32_t> timestep;
  std::optional<double> max_period;
  bool cos_first = false;  // of Fourier features too
  std::optional<double> downscale_freq_shift;
  std::optional<double> scale;

  // The file that holds the matrix B of Fourier features.
  std::string fourier_features;

  // True if no kind is given.
  bool Empty() const;
};

void AddAbsoluteFlags(CLI::App* app, AbsoluteFlags* flags);

// The message that the flags stand for. Reads the files that they name, into
// the message: tables travel with the request. Errors have exit code 2 (flags)
// or 3 (files).
absl::StatusOr<v1::AbsoluteEncoding> BuildAbsolute(const AbsoluteFlags& flags);

}  // namespace posenc::cli
