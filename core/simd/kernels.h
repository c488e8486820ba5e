// One implementation of every kernel, for one instruction set. Kernels cannot
// fail: callers have validated. Every instruction set gives the same bytes
// (products and sums are never fused, NaN payloads aside; every NaN that FP8 is
// rounded from is 0x7f).

#pragma once

#include <cstddef>
#include <cstdint>

namespace posenc::simd {

// Cosines and sines of n pairs of one token:
//   phi_i = sum over axes a of position[a] * turns[a][i] quarter turns
//   cos[i] = factor_i * cos(phi_i), sin[i] = factor_i * sin(phi_i)
// with turns = hi + mid + lo, split as angle/quarter_turns.h explains: hi and
// mid have at most 21 significant bits, so that hi * p and mid * p are exact
// for positions of 32 bits. Positions with more bits (fractions) are split in
// the kernel. |phi| < 2^51 quarter turns. The factor is any factor of both:
// attention factor, xPos factor, query scale.
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
  bool negate;                // by -phi: sines change sign
};

// Rows of cosines and sines of sums of angles, phi_i + delta_r,i:
//   cos[r][i] = cos phi_i * cos delta_r,i - sin phi_i * sin delta_r,i
//   sin[r][i] = sin phi_i * cos delta_r,i + cos phi_i * sin delta_r,i
// in float64, rounded once to float32. All arrays of float64 have room for n
// rounded up to 16.
struct AngleSums {
  const double* cos;  // of phi, times any factor
  const double* sin;
  const double* deltas;  // [rows][2][pitch]: cosines, then sines
  std::size_t pitch;
  std::size_t rows;  // up to 32
  std::size_t n;
  // What a float64 result may be off. Rows that have a result so close to
  // where float32 rounds the other way are reported. Results are exact if the
  // sines of phi and delta are both 0: no sine may be 0 of an angle that is
  // not.
  double error;
  bool negate;  // the sines
  // Written past the caches (KernelTable::end_streams). Results are then
  // aligned to 64 bytes in every row.
  bool stream;
};

// Where a rotation finds its bytes, and where it leaves them. It decides about
// the order of the work and the kind of stores, never about a byte.
enum class Memory {
  kCached,    // all of it fits a cache
  kCold,      // src comes from memory
  kStreamed,  // and dst is written past the caches, if src is not dst; then
              // KernelTable::end_streams has to be called
};

// Rotates the pairs of tokens x heads slices. The slice of token t and head h
// is at t * token_stride + h * head_stride, in src and in dst, and its cosines
// are at table + t * table_token_stride + h * table_head_stride, the sines
// table_sine_offset behind them. They are finite. All strides are in elements;
// any alignment. src and dst are equal or do not overlap; they are equal only
// if the pairings are.
// Half-split pairs are (i, i + pairs), interleaved ones (2i, 2i + 1), counted
// from the slice.
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
  // Channels that are copied beside each slice, so many from it on; none are if
  // src is dst.
  std::ptrdiff_t pass_offset;
  std::size_t pass_width;
  Memory memory;
  bool by_pages;  // WalksPagesAtOnce() of dispatch.h
};

using RotateKernel = void (*)(const RotateJob&);

// Indices of KernelTable::rotate. FP8 overflows, E5M2 to infinity and E4M3 to
// NaN, or (Finite) becomes the largest finite number.
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
  const char* name;  // "avx2"; also the spelling of POSENC_FORCE_ISA

  // [dtype][pairing in][pairing out]
  RotateKernel rotate[8][2][2];

  // Float32 is rounded from float64. Returns whether a result is so close to
  // halfway between two floats that it may be rounded the wrong way.
  bool (*trig_row_f32)(const TrigRow&, float* cos, float* sin);
  void (*trig_row_f64)(const TrigRow&, double* cos, double* sin);

  // Rows of the results are `pitch` apart. Returns a bit for each row that is
  // in doubt.
  std::uint32_t (*add_angles)(const AngleSums&, float* cos, float* sin,
                              std::ptrdiff_t pitch);
  // Row 0 alone, in float64. The sines are not negated, and are 0 only if those
  // of phi and delta are.
  void (*add_angles_f64)(const AngleSums&, double* cos, double* sin);

  // Orders what was written past the caches before what others are told next.
  // Once for many calls, as it waits for the memory. After each of them, 64 MB
  // take longer (AVX-512, Zen 5): a table, written by 16 KiB, 1.07 of the time,
  // rotations token-major, by 128 KiB, 1.01 .. 1.02, head-major, by MiB, 1.00.
  void (*end_streams)();

  // dst[i] = float(src[i]) exactly; and rounded to nearest even. Any alignment.
  void (*widen_f16)(const std::uint16_t* src, float* dst, std::size_t n);
  void (*widen_bf16)(const std::uint16_t* src, float* dst, std::size_t n);
  void (*narrow_f16)(const float* src, std::uint16_t* dst, std::size_t n);
  void (*narrow_bf16)(const float* src, std::uint16_t* dst, std::size_t n);
  void (*widen_e4m3)(const std::uint8_t* src, float* dst, std::size_t n);
  void (*widen_e5m2)(const std::uint8_t* src, float* dst, std::size_t n);
  void (*narrow_e4m3)(const float* src, std::uint8_t* dst, std::size_t n);
  void (*narrow_e4m3_finite)(const float* src, std::uint8_t* dst,
                             std::size_t n);
  void (*narrow_e5m2)(const float* src, std::uint8_t* dst, std::size_t n);
  void (*narrow_e5m2_finite)(const float* src, std::uint8_t* dst,
                             std::size_t n);
};

}  // namespace posenc::simd
