// Tests run on every instruction set that the CPU has.

#pragma once

#include <string>

#include "core/simd/dispatch.h"

namespace posenc::reference {

inline constexpr const char* kInstructionSets[] = {"sse2", "avx2", "avx512",
                                                   "avx512_bf16"};

// Null where this CPU cannot run it.
inline const simd::KernelTable* FindKernels(const std::string& name) {
  for (const simd::KernelTable* kernels : simd::SupportedKernels()) {
    if (name == kernels->name) return kernels;
  }
  return nullptr;
}

}  // namespace posenc::reference
