#include "core/simd/memory_walk.h"

#include <cstdint>
#include <limits>

namespace posenc::simd {
namespace {

// Zen 3 and Zen 4 are one family. Only Zen 4 has AVX-512.
#ifdef __x86_64__
bool IsZen3() {
  static const bool zen3 =
      __builtin_cpu_is("amdfam19h") && !__builtin_cpu_supports("avx512f");
  return zen3;
}
bool IsZen4() {
  static const bool zen4 =
      __builtin_cpu_is("amdfam19h") && __builtin_cpu_supports("avx512f");
  return zen4;
}
#else
bool IsZen3() { return false; }
bool IsZen4() { return false; }
#endif

}  // namespace

// A streaming copy of 64 MB, by memcpy, of one page at a time and of four: a
// Xeon with AVX-512 1.35 and 1.79, an EPYC (Zen 5) 1.25 and 1.05. The rotation
// of float32 on that EPYC by 64 MB: out of place 0.77 with four pages of what
// one gives, in place 0.79.
std::size_t PagesAtOnce() {
#ifdef __x86_64__
  static const std::size_t pages = __builtin_cpu_is("intel") ? 4 : 1;
  return pages;
#else
  return 1;  // not measured
#endif
}

// 64 MB, fetched and not; in place, of the best scaling, out of place, of the
// best copy.
//   Zen 4, AVX-512, does better by itself in place, and with float64. In place:
// float32 0.94 and 1.03, interleaved 0.99 and 1.05, float16 0.77 and 0.83,
// bfloat16 0.90 and 0.92, float64 0.64 and 0.80, 0.77 and 1.03 (by AVX2:
// float32 0.91 and 0.96, 0.77 and 0.87, float16 0.74 and 0.89, bfloat16 0.70
// and 0.81). Out of place: float64 0.88 and 0.94, 0.89 and 0.99; but
// float32 1.12 and 0.94, float16 1.04 and 0.97, bfloat16 1.10 and 1.02.
//   Zen 3 wants 16 bits to be fetched, whose conversions keep it from loading
// far ahead. Out of place: float32 0.92 and 0.98, interleaved 0.90 and 0.97;
// float16 0.94 and 0.79, 0.94 and 0.77; bfloat16 0.92 and 0.76, 0.94 and 0.78;
// float64 0.79 and 0.80, 0.91 and 0.92. In place: float32 0.79 and 0.89, 0.82
// and 0.85; float16 0.85 and 0.66, 0.81 and 0.64; bfloat16 0.78 and 0.66, 0.83
// and 0.64; float64 0.78 and 0.75, 0.82 and 0.80.
bool FetchesAhead(bool in_place, std::size_t element) {
  if (IsZen3()) return element <= 2;
  return !IsZen4() || (!in_place && element < 8);
}

// 64 MB in place, AVX-512, as a part of the speed of scaling in place. Zen 5:
// float32 by 128 KiB and 1 MiB 0.92 and 0.92, 16 bits by 128 and 512 KiB 0.89
// and 0.84. Zen 4 by 128 KiB, 512 KiB and 1 MiB: float32 0.80, 0.89 and 0.90,
// interleaved 0.82, 0.88 and 0.92; float16 0.71, 0.74 and 0.73; bfloat16 0.76,
// 0.78 and 0.81. Out of place it gains 0.01 .. 0.05. Zen 3, AVX2, by 128 and
// 512 KiB: float32 0.80 and 0.89, 16 bits 0.76 and 0.82; out of place it gains
// 0.01 .. 0.07.
std::size_t ColdBlockBytes() {
  if (IsZen3() || IsZen4()) return std::size_t{512} << 10;
  return std::size_t{PagesAtOnce() > 1 ? 512U : 128U} << 10;
}

// 64 MB, AVX-512, as a part of the speed of the best copy (out) and of scaling
// in place (in). Zen 5, by 128 and 512 KiB, which stay in the second-level
// cache, and by all of 2 MiB: float32 out 0.98, 0.97 and 0.93, in 0.83, 0.90
// and 0.83; bfloat16 0.88, 0.92 and 0.73, 0.80, 0.84 and 0.63. Xeon, all heads
// by each page, by 16 and 128 KiB: float32 out 0.94 and 0.93, float64 0.90 and
// 0.88, 16 bits 0.89 by both.
std::size_t HeadBlockBytes() {
  return std::size_t{PagesAtOnce() > 1 ? 16U : 512U} << 10;
}

// 64 MB, AVX-512, as a part of the speed of the best copy (out) and of scaling
// in place (in). Zen 5, float32: one head at a time 0.80 out and 0.77 in, two
// 0.97 and 0.90, four 0.68 and 0.59, because their pages are too far apart
// (kernels.h says how lines and pages are walked). Zen 4, one, two and four:
// float32 out 0.57, 0.71 and 0.80, in 0.45, 0.70 and 0.92; float16 0.46, 0.54
// and 0.64, 0.31, 0.45 and 0.68; bfloat16 0.44, 0.54 and 0.64, 0.33, 0.47 and
// 0.66; float64 0.40, 0.64 and 0.60, 0.36, 0.63 and 0.59. Zen 3, AVX2: float32
// out 0.84, 1.03 and 0.99, in 0.76, 0.88 and 0.96, interleaved 0.66, 0.89 and
// 1.00, 0.68, 0.82 and 0.95; 16 bits are the same by two and by four. CPUs
// that walk some pages at once take all heads by pages (kernels_lines.inl).
std::size_t HeadsAtOnce() {
  if (PagesAtOnce() > 1) return std::numeric_limits<std::int32_t>::max();
  return IsZen3() || IsZen4() ? 4 : 2;
}

// A table of 131,072 x 64 by AVX2, of the best fill, past the caches and
// through them: Zen 3 0.21 and 0.34 .. 0.38, because it computes for longer
// than it writes.
bool StreamsTables() { return !IsZen3(); }

}  // namespace posenc::simd
