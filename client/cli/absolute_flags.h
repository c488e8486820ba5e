// Flags for posenc.v1.AbsoluteEncoding, which `table` and `add` share.

#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "posenc/client.h"

namespace posenc::cli {

struct AbsoluteFlags {
  std::optional<std::int32_t> sinusoidal;
  std::string order;
  std::optional<double> base;  // sincos_grid too
  bool endpoint = false;
  std::optional<std::int64_t> padding_position;
  bool odd_dim_sine = false;

  std::string learned;
  std::optional<double> hierarchical_alpha;

  std::optional<std::int32_t> sincos_grid;
  std::string extents;
  bool last_axis_first = false;
  std::int32_t leading_zero_rows = 0;
  std::string steps;

  std::optional<std::int32_t> timestep;
  std::optional<double> max_period;
  bool cos_first = false;  // fourier_features too
  std::optional<double> downscale_freq_shift;
  std::optional<double> scale;

  std::string fourier_features;

  // No encoding.
  bool Empty() const;
};

void AddAbsoluteFlags(CLI::App* app, AbsoluteFlags* flags);

// Reads tables. Errors: exit codes 2 and 3.
absl::StatusOr<v1::AbsoluteEncoding> BuildAbsolute(const AbsoluteFlags& flags);

}  // namespace posenc::cli
