// What a rotation in a cache fetches. Part of kernels.inl.

#pragma once

#include <cstddef>
#include <cstdint>

#include "core/simd/kernels.h"
#include "core/simd/kernels_tokens.inl"

namespace posenc::simd {
namespace {

constexpr std::ptrdiff_t kAheadInCache = 2048;
constexpr std::size_t kFirstCache = 32 * 1024;

// Bytes from each slice of src to what is fetched while it is rotated; 0 if
// nothing is.
//
// In place, from the second-level cache, the CPU fetches ahead or does not, by
// where the loop happens to stand in the program. Float32, cycles a slice of
// 512 B (AVX-512, Zen 5): 11.3 or 12.9 left to the CPU, 11.7 .. 12.0 if
// fetched; of a scaling 0.91 and 0.90 (Xeon, AVX-512, which is left to itself).
// 16 bits wait for their conversions; float64, and all by AVX2, lose as much as
// they gain.
//
// Out of place it always fetches src, and to do that once more costs 1 .. 40 %.
// But dst is another matter: CPUs that walk some pages at once gain if its
// lines are there before they are stored to. Of a vector copy, 256 KiB, not
// fetched and fetched: float32 0.90 and 0.97, float64 0.86 and 0.97, 16 bits
// 0.62 and 0.63 (Xeon, AVX-512). They stand as far from src everywhere.
template <class Dtype>
std::ptrdiff_t AheadInCache(const RotateJob& job) {
  constexpr auto kSize =
      static_cast<std::ptrdiff_t>(sizeof(typename Dtype::Storage));
  const std::size_t slices = job.lines * job.tokens * job.heads;
  const auto bytes = slices * static_cast<std::size_t>(job.src_stride * kSize);
  if (job.memory != Memory::kCached || bytes <= kFirstCache) return 0;
  if (job.src == job.dst) {
    const bool gains =
        kSize == sizeof(float) && Dtype::kLanes == 16 && job.pages == 1;
    return gains ? kAheadInCache : 0;
  }
  if (!kIsNative<Dtype> || job.pages == 1 || !job.fetch ||
      job.src_stride != job.dst_stride ||
      job.src_line_stride != job.dst_line_stride) {
    return 0;
  }
  return static_cast<std::ptrdiff_t>(reinterpret_cast<std::uintptr_t>(job.dst) -
                                     reinterpret_cast<std::uintptr_t>(job.src) +
                                     kAheadInCache);
}

}  // namespace
}  // namespace posenc::simd
