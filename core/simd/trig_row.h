// The active kernel for rows of cosines and sines, by their type.

#pragma once

#include "core/simd/dispatch.h"
#include "core/simd/kernels.h"

namespace posenc::simd {

inline void FillTrigRow(const TrigRow& row, float* cos, float* sin) {
  ActiveKernels().trig_row_f32(row, cos, sin);
}
inline void FillTrigRow(const TrigRow& row, double* cos, double* sin) {
  ActiveKernels().trig_row_f64(row, cos, sin);
}

}  // namespace posenc::simd
