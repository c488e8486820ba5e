// The flags that describe a posenc.v1.Bias: one of six rules for a bias, or one
// of three for indices of relative positions.

#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "posenc/client.h"

namespace posenc::cli {

// The rules. The first field of exactly one of them has a value. Texts are
// lists of numbers, one per head, or names of files with trained weights.
struct BiasFlags {
  // ALiBi: heads.
  std::optional<std::int32_t> alibi;
  std::optional<double> max_bias;
  std::string slopes;

  // T5: relative positions in buckets, logarithmic from half of them on.
  // Without weights the answer is the buckets' numbers.
  bool t5 = false;
  std::int32_t num_buckets = 0;
  std::int32_t max_distance = 0;
  bool bidirectional = false;
  std::string weights;

  // KERPLE: the kernel, and its two parameters for each head.
  std::string kerple;
  std::string r1;
  std::string r2;

  // FIRE: the file with its small network, and its three numbers.
  std::string fire;
  double c = 0;
  double threshold = 0;
  double epsilon = 0;

  // Sandwich: heads, and channels of the sinusoids that it multiplies.
  std::optional<std::int32_t> sandwich;
  std::int32_t dim = 0;

  // TUPE: the file with projected position embeddings.
  std::string untied_positions;
  std::optional<double> scale;

  // Indices: of Shaw's clipped distances, of DeBERTa's buckets, or of the cells
  // of an image's window (Swin).
  std::string clip;
  std::optional<std::int32_t> deberta;
  std::int32_t bucket_size = 0;
  std::string grid;
};

void AddBiasFlags(CLI::App* app, BiasFlags* flags);

// The message that the flags stand for. Reads the files that they name, into
// the message. Errors have exit code 2 (flags) or 3 (files).
absl::StatusOr<v1::Bias> BuildBias(const BiasFlags& flags);

}  // namespace posenc::cli
