// Provides the cosines and sines of a rotation's tokens: ApplyRope has a source
// for positions, and Reposition has a source for changes of positions.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/simd/kernels.h"

namespace posenc::core {

// Produces the (cos, sin) row of a token. Not thread-safe: each thread has its
// own Clone().
class CosSinSource {
 public:
  virtual ~CosSinSource() = default;

  // Returns another source of the same values.
  virtual std::unique_ptr<CosSinSource> Clone() const = 0;

  virtual std::size_t pairs() const = 0;
  // Number of frequency sets: 1, or one for each head of the tensor.
  virtual std::size_t heads() const = 0;
  // True if all tokens of all sequences have the same row.
  virtual bool uniform() const { return false; }

  // Writes the row of token t of sequence b: cosines, then sines, in the shape
  // [heads][2][pairs].
  virtual void Fill(std::int64_t b, std::int64_t t, float* row) = 0;
  virtual void Fill(std::int64_t b, std::int64_t t, double* row) = 0;

  // Calls Fill() for n tokens from t on, and writes their rows one after
  // another.
  virtual void FillRun(std::int64_t b, std::int64_t t, std::int64_t n,
                       float* rows) {
    const std::size_t values = heads() * 2 * pairs();
    for (std::int64_t i = 0; i < n; ++i, rows += values) Fill(b, t + i, rows);
  }

  // True if the channels that do not rotate are multiplied by HeadScale().
  virtual bool scaled() const { return false; }
  virtual double HeadScale(std::int64_t /*b*/, std::int64_t /*t*/) { return 1; }
};

}  // namespace posenc::core
