// The tables that the files kernels_<isa>.cc export. Only those files may be
// compiled for more than the baseline instruction set.

#pragma once

#include "core/simd/kernels.h"

namespace posenc::simd {

extern const KernelTable kSse2Kernels;
extern const KernelTable kAvx2Kernels;
extern const KernelTable kAvx512Kernels;
extern const KernelTable kNeonKernels;

// The kernels that use AVX-512's rounding to bfloat16. On CPUs with this
// rounding, all other kernels are those of kAvx512Kernels.
struct Bf16Kernels {
  RotateKernel rotate[2][2];  // [pairing in][pairing out]
  void (*narrow)(const float* src, std::uint16_t* dst, std::size_t count);
};
extern const Bf16Kernels kAvx512Bf16Kernels;

}  // namespace posenc::simd
