// The rotation. Part of kernels.inl.

#pragma once

#include <cstddef>
#include <cstring>

#include "core/simd/kernels.h"
#include "core/simd/kernels_convert.inl"

namespace posenc::simd {
namespace {

// Pairs [first, first + lanes) of a slice of `pairs` pairs.
template <class Dtype, PairingIndex kPairing>
void LoadPairs(const typename Dtype::Storage* src, std::size_t first,
               std::size_t pairs, typename Dtype::Batch* x,
               typename Dtype::Batch* y) {
  if constexpr (kPairing == kHalf) {
    *x = Dtype::Load(src + first);
    *y = Dtype::Load(src + pairs + first);
  } else {
    Dtype::LoadInterleaved(src + 2 * first, x, y);
  }
}

// (x, y) -> (x cos - y sin, x sin + y cos) into pairs [first, first + lanes).
// Each product and sum is rounded: SSE2 has no fused ones.
template <class Dtype, PairingIndex kPairing>
void StoreRotated(const typename Dtype::Batch& x,
                  const typename Dtype::Batch& y,
                  const typename Dtype::Real* cosines,
                  const typename Dtype::Real* sines, std::size_t first,
                  std::size_t pairs, typename Dtype::Storage* dst) {
  using Batch = typename Dtype::Batch;
  const Batch c = Batch::load_unaligned(cosines + first);
  const Batch s = Batch::load_unaligned(sines + first);
  const Batch rotated_x = x * c - y * s;
  const Batch rotated_y = x * s + y * c;
  if constexpr (kPairing == kHalf) {
    Dtype::Store(rotated_x, dst + first);
    Dtype::Store(rotated_y, dst + pairs + first);
  } else {
    Dtype::StoreInterleaved(rotated_x, rotated_y, dst + 2 * first);
  }
}

// Rotates a slice of at least one batch of pairs. What is left over is done by
// one more batch that overlaps the others. It is loaded before anything is
// stored, so that nothing is rotated twice if src is dst.
template <class Dtype, PairingIndex kIn, PairingIndex kOut>
void RotateLongSlice(const typename Dtype::Storage* src,
                     typename Dtype::Storage* dst, std::size_t pairs,
                     const typename Dtype::Real* cosines,
                     const typename Dtype::Real* sines) {
  using Batch = typename Dtype::Batch;
  constexpr std::size_t kLanes = Dtype::kLanes;
  const std::size_t last = pairs - kLanes;
  const bool overlaps = pairs % kLanes != 0;
  Batch last_x(0), last_y(0);
  if (overlaps) LoadPairs<Dtype, kIn>(src, last, pairs, &last_x, &last_y);
  for (std::size_t i = 0; i <= last; i += kLanes) {
    Batch x, y;
    LoadPairs<Dtype, kIn>(src, i, pairs, &x, &y);
    StoreRotated<Dtype, kOut>(x, y, cosines, sines, i, pairs, dst);
  }
  if (overlaps) {
    StoreRotated<Dtype, kOut>(last_x, last_y, cosines, sines, last, pairs, dst);
  }
}

// Rotates a slice of fewer pairs than a batch has, through padded copies.
template <class Dtype, PairingIndex kIn, PairingIndex kOut>
void RotateShortSlice(const typename Dtype::Storage* src,
                      typename Dtype::Storage* dst, std::size_t pairs,
                      const typename Dtype::Real* cosines,
                      const typename Dtype::Real* sines) {
  using Storage = typename Dtype::Storage;
  using Real = typename Dtype::Real;
  constexpr std::size_t kLanes = Dtype::kLanes;
  Storage in[2 * kLanes] = {}, out[2 * kLanes];
  Real padded_cosines[kLanes] = {}, padded_sines[kLanes] = {};
  // The second half of a padded half-split slice starts at kLanes.
  const std::size_t half_bytes = pairs * sizeof(Storage);
  const std::size_t second_in = kIn == kHalf ? kLanes : pairs;
  const std::size_t second_out = kOut == kHalf ? kLanes : pairs;
  std::memcpy(in, src, half_bytes);
  std::memcpy(in + second_in, src + pairs, half_bytes);
  std::memcpy(padded_cosines, cosines, pairs * sizeof(Real));
  std::memcpy(padded_sines, sines, pairs * sizeof(Real));
  RotateLongSlice<Dtype, kIn, kOut>(in, out, kLanes, padded_cosines,
                                    padded_sines);
  std::memcpy(dst, out, half_bytes);
  std::memcpy(dst + pairs, out + second_out, half_bytes);
}

inline void Prefetch(const char* at, std::size_t bytes) {
  constexpr std::size_t kCacheLine = 64;
  for (std::size_t i = 0; i < bytes; i += kCacheLine) {
    __builtin_prefetch(at + i);
  }
}

template <class Dtype, PairingIndex kIn, PairingIndex kOut>
void Rotate(const RotateJob& job_in_memory) {
  using Storage = typename Dtype::Storage;
  using Real = typename Dtype::Real;
  // The job is copied: vector stores may alias anything in memory, so the loop
  // would have to reload every stride.
  const RotateJob job = job_in_memory;
  const std::size_t pairs = job.pairs;
  if (pairs == 0) return;
  const Storage* token_src = static_cast<const Storage*>(job.src);
  Storage* token_dst = static_cast<Storage*>(job.dst);
  const Real* token_row = static_cast<const Real*>(job.table);
  for (std::size_t token = 0; token < job.tokens; ++token) {
    const Storage* src = token_src;
    Storage* dst = token_dst;
    const Real* row = token_row;
    for (std::size_t head = 0; head < job.heads; ++head) {
      if (job.prefetch > 0) {
        Prefetch(reinterpret_cast<const char*>(src) + job.prefetch,
                 2 * pairs * sizeof(Storage));
      }
      if (pairs >= Dtype::kLanes) {
        RotateLongSlice<Dtype, kIn, kOut>(src, dst, pairs, row,
                                          row + job.table_sine_offset);
      } else {
        RotateShortSlice<Dtype, kIn, kOut>(src, dst, pairs, row,
                                           row + job.table_sine_offset);
      }
      src += job.src_head_stride;
      dst += job.dst_head_stride;
      row += job.table_head_stride;
    }
    token_src += job.src_token_stride;
    token_dst += job.dst_token_stride;
    token_row += job.table_token_stride;
  }
}

}  // namespace
}  // namespace posenc::simd
