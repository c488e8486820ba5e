// Flags for posenc.v1.Bias, and for the bucket rule that scores share with it.

#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "posenc/client.h"

namespace posenc::cli {

struct BiasFlags {
  std::optional<std::int32_t> alibi;
  std::optional<double> max_bias;
  std::string slopes;

  bool t5 = false;
  std::int32_t num_buckets = 0;
  std::int32_t max_distance = 0;
  bool bidirectional = false;
  std::string weights;

  std::string kerple;
  std::string r1;
  std::string r2;

  std::string fire;
  double c = 0;
  double threshold = 0;
  double epsilon = 0;

  std::optional<std::int32_t> sandwich;
  std::int32_t dim = 0;

  std::string untied_positions;
  std::optional<double> scale;

  std::string clip;
  std::optional<std::int32_t> deberta;
  std::int32_t bucket_size = 0;
  std::string grid;
};

void AddBiasFlags(CLI::App* app, BiasFlags* flags);

// Reads tables. Errors: exit codes 2 and 3.
absl::StatusOr<v1::Bias> BuildBias(const BiasFlags& flags);

}  // namespace posenc::cli
