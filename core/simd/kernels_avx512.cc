// AVX-512 F, BW, CD, DQ, VL.

#include "core/simd/isa_avx512.inl"
#include "core/simd/kernel_tables.h"
#include "core/simd/kernels.inl"

namespace posenc::simd {

constinit const KernelTable kAvx512Kernels = MakeKernels<Avx512>("avx512");

}  // namespace posenc::simd
