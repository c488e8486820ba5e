// Cosines and sines of many angles at once (simd/kernels.h), by the kernel of
// the active instruction set, chosen by the type of the results.

#pragma once

#include "core/simd/dispatch.h"
#include "core/simd/kernels.h"

namespace posenc::core {

inline void FillCosSinRow(const simd::TrigRow& row, float* cos, float* sin) {
  simd::ActiveKernels().trig_row_f32(row, cos, sin);
}
inline void FillCosSinRow(const simd::TrigRow& row, double* cos, double* sin) {
  simd::ActiveKernels().trig_row_f64(row, cos, sin);
}

}  // namespace posenc::core
