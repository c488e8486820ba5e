// Computes cosines and sines of many angles at once (simd/kernels.h).
// FillCosSinRow uses the active instruction set's kernel for the type of the
// results. Float32 results are correctly rounded (exact_rounding.h).

#pragma once

#include "core/angle/exact_rounding.h"
#include "core/simd/dispatch.h"
#include "core/simd/kernels.h"

namespace posenc::core {

inline void FillCosSinRow(const simd::TrigRow& row, float* cos, float* sin) {
  if (simd::ActiveKernels().trig_row_f32(row, cos, sin)) [[unlikely]] {
    RoundExactly(row, cos, sin);
  }
}
inline void FillCosSinRow(const simd::TrigRow& row, double* cos, double* sin) {
  simd::ActiveKernels().trig_row_f64(row, cos, sin);
}

}  // namespace posenc::core
