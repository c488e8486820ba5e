// A KernelTable has an implementation of every kernel for one instruction set.
// Kernels cannot fail, because callers validate the arguments. Every
// instruction set gives the same bytes, except for NaN payloads. So rotations
// never fuse products and sums. Every NaN becomes 0x7f in FP8.

#pragma once

#include <cstddef>
#include <cstdint>

namespace posenc::simd {

// Cosines and sines of n pairs of one token:
//
//   phi_i = sum over axes a of position[a] * turns[a][i] quarter turns
//   cos[i] = factor_i * cos(phi_i), sin[i] = factor_i * sin(phi_i)
//
// Here turns = hi + mid + lo (angle/quarter_turns.h). hi and mid have at most
// 21 significant bits, so that hi * p and mid * p are exact for positions of 32
// bits. Fractional positions may have more bits; the kernel splits them.
// |phi| < 2^51 quarter turns. The factor is the product of attention factor,
// xPos factor and query scale.
struct TrigRow {
  // Position of pair i on axis a: position[a * position_axis_stride +
  // i * position_pair_stride]; the pair stride is 0 (one position for all)
  // or 1.
  const double* position;
  std::size_t position_axis_stride;
  std::size_t position_pair_stride;
  const double* turns_hi;  // [axes][n]
  const double* turns_mid;
  const double* turns_lo;
  std::size_t axes;
  std::size_t n;
  const double* factor;       // multiplies in float64, before rounding
  std::size_t factor_stride;  // 0 or 1
  bool negate;                // uses -phi: sines change sign
};

// Rows of results. Row r has the cosines and sines of the angles
// phi_i + delta_r,i:
//
//   cos[r][i] = cos phi_i * cos delta_r,i - sin phi_i * sin delta_r,i
//   sin[r][i] = sin phi_i * cos delta_r,i + cos phi_i * sin delta_r,i
//
// Each result is computed in float64 and rounded once to float32. Each float64
// row is padded with zeros up to a multiple of 16 values.
struct AngleSums {
  const double* cos;  // of phi, times any factor
  const double* sin;
  const double* deltas;  // [rows][2][pitch]: cosines, then sines
  std::size_t pitch;
  std::size_t rows;  // up to 32
  std::size_t n;
  // Error bound of a float64 result. A row is reported if this error could
  // change the rounding of one of its results to float32. Results count as
  // exact if the sines of phi and delta are both 0, so a sine may be 0 only if
  // its angle is 0.
  double error;
  bool negate;  // negates the sines
  // Writes results with non-temporal stores (KernelTable::end_streams). Every
  // row of results must then be aligned to 64 bytes.
  bool stream;
};

// The kind of memory that has the input and output of a rotation. The kind
// decides the order of the work and the kind of stores, but not the result.
enum class Memory {
  kCached,    // everything fits in a cache
  kCold,      // src comes from memory
  kStreamed,  // src comes from memory, and dst gets non-temporal stores, unless
              // it is src; call KernelTable::end_streams afterwards
};

// Rotates the pairs of tokens * heads slices. The slice of token t and head h
// is at t * token_stride + h * head_stride, in src and in dst. The cosines of
// this slice are at table + t * table_token_stride + h * table_head_stride, and
// its sines are table_sine_offset behind the cosines. Cosines and sines are
// finite. All strides are in elements. src and dst may have any alignment. src
// and dst do not overlap, but may be equal if input and output have the same
// pairing. Within a slice, half-split pairs are (i, i + pairs), and interleaved
// pairs are (2i, 2i + 1).
struct RotateJob {
  const void* src;
  void* dst;
  std::size_t tokens;
  std::size_t heads;
  std::size_t pairs;
  std::ptrdiff_t token_stride;
  std::ptrdiff_t head_stride;
  const void* table;  // float, or double for float64 tensors
  std::ptrdiff_t table_token_stride;
  std::ptrdiff_t table_head_stride;
  std::ptrdiff_t table_sine_offset;
  // Copies the pass_width channels at offset pass_offset from the start of each
  // slice, unless src is dst.
  std::ptrdiff_t pass_offset;
  std::size_t pass_width;
  Memory memory;
  bool by_pages;  // WalksPagesAtOnce() of dispatch.h
};

using RotateKernel = void (*)(const RotateJob&);

// The index of a dtype in the arrays of KernelTable. A result that is too large
// for FP8 becomes NaN with kE4m3, infinity with kE5m2, and the largest finite
// number with kE4m3Finite and kE5m2Finite.
enum DtypeIndex {
  kF32 = 0,
  kF16 = 1,
  kBf16 = 2,
  kF64 = 3,
  kE4m3 = 4,
  kE4m3Finite = 5,
  kE5m2 = 6,
  kE5m2Finite = 7,
};
enum PairingIndex { kHalf = 0, kInterleaved = 1 };

struct KernelTable {
  const char* name;  // "avx2"; also a value of POSENC_FORCE_ISA

  // [dtype][pairing in][pairing out]
  RotateKernel rotate[8][2][2];

  // Computes in float64 and rounds to float32. Returns true if a result is so
  // close to the middle of two floats that its rounding may be wrong.
  bool (*trig_row_f32)(const TrigRow&, float* cos, float* sin);
  void (*trig_row_f64)(const TrigRow&, double* cos, double* sin);

  // Rows of the results are `pitch` apart. Returns a mask in which bit r is set
  // if the rounding of row r may be wrong.
  std::uint32_t (*add_angles)(const AngleSums&, float* cos, float* sin,
                              std::ptrdiff_t pitch);
  // Computes only row 0, in float64. The sines are not negated, and are 0 only
  // if the sines of phi and delta are both 0.
  void (*add_angles_f64)(const AngleSums&, double* cos, double* sin);

  // Orders streamed stores before the stores that follow. Callers call
  // end_streams before another thread reads the output. One call for many
  // kernel calls is best, because end_streams waits for the memory. One wait
  // for each 16 KiB costs 7 % (AVX-512, Zen 5).
  void (*end_streams)();

  // Convert n elements of a dtype to float32 (widen) or from float32 (narrow).
  // widen and narrow are null for kF64. Widening is exact, and narrowing rounds
  // to nearest even. src and dst may have any alignment.
  void (*widen[8])(const void* src, float* dst, std::size_t n);
  void (*narrow[8])(const float* src, void* dst, std::size_t n);
};

}  // namespace posenc::simd
