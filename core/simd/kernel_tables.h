// The tables that the files kernels_<isa>.cc export. Only those files may be
// compiled for more than the baseline instruction set.

#pragma once

#include "core/simd/kernels.h"

namespace posenc::simd {

extern const KernelTable kSse2Kernels;
extern const KernelTable kAvx2Kernels;
extern const KernelTable kAvx512Kernels;
extern const KernelTable kAvx512Bf16Kernels;
extern const KernelTable kNeonKernels;

}  // namespace posenc::simd
