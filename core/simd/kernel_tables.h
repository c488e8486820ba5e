// The tables that the per-instruction-set files export. Only these files may be
// compiled for more than the baseline.

#pragma once

#include "core/simd/kernels.h"

namespace posenc::simd {

extern const KernelTable kSse2Kernels;
extern const KernelTable kAvx2Kernels;
extern const KernelTable kAvx512Kernels;
extern const KernelTable kNeonKernels;

// The kernels that use AVX-512's rounding to bfloat16. CPUs with it take all
// other kernels from kAvx512Kernels.
struct Bf16Kernels {
  RotateKernel rotate[2][2];  // [pairing in][pairing out]
  void (*narrow)(const float* src, std::uint16_t* dst, std::size_t count);
};
extern const Bf16Kernels kAvx512Bf16Kernels;

}  // namespace posenc::simd
