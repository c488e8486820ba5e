#include "core/simd/memory_walk.h"

namespace posenc::simd {
namespace {

// Zen 3 is of the same family, and takes Zen 4's ways unmeasured.
bool IsZen4() {
#ifdef __x86_64__
  static const bool zen4 = __builtin_cpu_is("amdfam19h");
  return zen4;
#else
  return false;
#endif
}

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

// Zen 4 does better by itself in place, and with float64. 64 MB, AVX-512,
// fetched and not; in place, of the best scaling: float32 0.94 and 1.03,
// interleaved 0.99 and 1.05, float16 0.77 and 0.83, bfloat16 0.90 and 0.92,
// float64 0.64 and 0.80, 0.77 and 1.03 (by AVX2: float32 0.91 and 0.96, 0.77
// and 0.87, float16 0.74 and 0.89, bfloat16 0.70 and 0.81). Out of place, of
// the best copy: float64 0.88 and 0.94, 0.89 and 0.99; but float32 1.12 and
// 0.94, float16 1.04 and 0.97, bfloat16 1.10 and 1.02.
bool FetchesAhead(bool in_place, bool float64) {
  return !IsZen4() || (!in_place && !float64);
}

// 64 MB in place, AVX-512, as a part of the speed of scaling in place. Zen 5:
// float32 by 128 KiB and 1 MiB 0.92 and 0.92, 16 bits by 128 and 512 KiB 0.89
// and 0.84. Zen 4 by 128 KiB, 512 KiB and 1 MiB: float32 0.80, 0.89 and 0.90,
// interleaved 0.82, 0.88 and 0.92; float16 0.71, 0.74 and 0.73; bfloat16 0.76,
// 0.78 and 0.81. Out of place it gains 0.01 .. 0.05.
std::size_t ColdBlockBytes() {
  return IsZen4() ? std::size_t{512} << 10 : std::size_t{128} << 10;
}

// 64 MB, AVX-512, as a part of the speed of the best copy (out) and of scaling
// in place (in). Zen 5, float32: one head at a time 0.80 out and 0.77 in, two
// 0.97 and 0.90, four 0.68 and 0.59, because their pages are too far apart
// (kernels.h says how lines and pages are walked). Zen 4, one, two and four:
// float32 out 0.57, 0.71 and 0.80, in 0.45, 0.70 and 0.92; float16 0.46, 0.54
// and 0.64, 0.31, 0.45 and 0.68; bfloat16 0.44, 0.54 and 0.64, 0.33, 0.47 and
// 0.66; float64 0.40, 0.64 and 0.60, 0.36, 0.63 and 0.59.
std::size_t HeadsAtOnce() { return IsZen4() ? 4 : 2; }

}  // namespace posenc::simd
