// Reference loops for rotations and tables: plain copies, scalings and fills,
// and the loops that people write. Compiled for this CPU. core_bench.cc
// describes the ratios.

#pragma once

#include <cstddef>
#include <cstdint>

#include "core/base/tensor.h"
#include "core/rope/spec.h"

namespace posenc::bench {

// Copy by non-temporal stores, with prefetch: one page after another, or four
// at once. Memory is aligned to 64 bytes, sizes are whole groups of four pages.
void StreamCopy(const void* src, void* dst, std::size_t bytes);
void StreamCopyFourPages(const void* src, void* dst, std::size_t bytes);

// Copies by vectors of 64 bytes.
void VectorCopy(const void* src, void* dst, std::size_t bytes);

// data[i] *= 1, by vectors, or with prefetch in one page or four.
template <class Real>
void VectorScale(Real* data, std::size_t bytes);
template <class Real>
void FetchingScale(Real* data, std::size_t bytes);
template <class Real>
void FetchingScaleFourPages(Real* data, std::size_t bytes);

// Fills by non-temporal stores.
void StreamFill(void* dst, std::size_t bytes);

// The usual loop: rotates all of [tokens, heads, head_dim] by float32 rows
// [tokens, head_dim / 2] (float64 rows for float64).
void NaiveRotate(core::Dtype dtype, core::Pairing pairing, const void* src,
                 void* dst, std::int64_t tokens, std::int64_t heads,
                 std::int64_t head_dim, const double* cos, const double* sin);

// A table by libm's functions in double, rounded once: [rows, pairs] each.
void NaiveTable(const double* inv_freq, std::int64_t rows, std::int64_t pairs,
                float* cos, float* sin);

}  // namespace posenc::bench
