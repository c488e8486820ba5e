// What rotations and tables are measured by: copies, scalings and fills that do
// nothing else, and the loops that people write. Compiled for the CPU at hand.
// docs of the ratios: core_bench.cc.

#pragma once

#include <cstddef>
#include <cstdint>

#include "core/rope/spec.h"
#include "core/tensor.h"

namespace posenc::bench {

// Past the caches, fetching ahead: one page after another, or four at once.
// Memory is aligned to 64 bytes, sizes are whole groups of four pages.
void StreamCopy(const void* src, void* dst, std::size_t bytes);
void StreamCopyFourPages(const void* src, void* dst, std::size_t bytes);

// Vectors of 64 bytes, nothing else.
void VectorCopy(const void* src, void* dst, std::size_t bytes);

// data[i] *= 1, likewise, and fetching ahead in one page or four.
template <class Real>
void VectorScale(Real* data, std::size_t bytes);
template <class Real>
void FetchingScale(Real* data, std::size_t bytes);
template <class Real>
void FetchingScaleFourPages(Real* data, std::size_t bytes);

// Past the caches.
void StreamFill(void* dst, std::size_t bytes);

// The loop that everybody writes: [tokens, heads, head_dim], all of it rotated,
// by float32 rows [tokens, head_dim / 2] (float64 rows for float64).
void NaiveRotate(core::Dtype dtype, core::Pairing pairing, const void* src,
                 void* dst, std::int64_t tokens, std::int64_t heads,
                 std::int64_t head_dim, const double* cos, const double* sin);

// A table by libm's functions in double, rounded once: [rows, pairs] each.
void NaiveTable(const double* inv_freq, std::int64_t rows, std::int64_t pairs,
                float* cos, float* sin);

}  // namespace posenc::bench
