// The tables that the per-instruction-set files export. Only their files may be
// compiled for more than the baseline.

#pragma once

#include "core/simd/kernels.h"

namespace posenc::simd {

extern const KernelTable kSse2Kernels;
extern const KernelTable kAvx2Kernels;
extern const KernelTable kAvx512Kernels;
extern const KernelTable kNeonKernels;

// What an instruction that rounds to bfloat16 changes. The table of these CPUs
// has all else from kAvx512Kernels.
struct Bf16Kernels {
  RotateKernel rotate[2][2];  // [pairing in][pairing out]
  void (*narrow)(const float* src, std::uint16_t* dst, std::size_t count);
};
extern const Bf16Kernels kAvx512Bf16Kernels;

}  // namespace posenc::simd
