// Holds the cosines and sines of some tokens of a rotation, one row per token.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/rope/cos_sin_source.h"
#include "core/simd/kernels.h"

namespace posenc::core {

class CosSinTable {
 public:
  // `wide` means float64. `values` counts the cosines and sines of a token.
  // `scaled` adds a factor per token (CosSinSource::HeadScale).
  CosSinTable(bool wide, std::size_t values, std::int64_t tokens, bool scaled);

  // Evaluates n tokens of sequence b, from token `first` on, into rows `at`,
  // `at` + 1, ...
  void Fill(CosSinSource* source, std::int64_t b, std::int64_t first,
            std::int64_t n, std::int64_t at);
  const std::byte* At(std::int64_t row) const {
    return data_ + static_cast<std::size_t>(row) * token_bytes_;
  }
  double Scale(std::int64_t row) const { return scales_[row]; }

 private:
  bool wide_;
  std::size_t token_bytes_;
  std::unique_ptr<std::byte[]> storage_;
  std::byte* data_;  // in storage_, aligned to a cache line
  std::vector<double> scales_;
};

}  // namespace posenc::core
