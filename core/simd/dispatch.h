// Chooses the instruction set.

#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/simd/kernels.h"

namespace posenc::simd {

// Returns the kernels that this CPU can run, slowest first. Their names are
// "sse2", "avx2", "avx512" and "avx512_bf16", or "neon" on AArch64.
const std::vector<const KernelTable*>& SupportedKernels();

// Returns the kernels with the name `forced` (the value of POSENC_FORCE_ISA),
// or the fastest kernels if `forced` is empty. Returns INVALID_ARGUMENT for an
// unknown or unsupported name; the message lists the supported names.
absl::StatusOr<const KernelTable*> SelectKernels(absl::string_view forced);

// Returns the kernels that POSENC_FORCE_ISA names, or the fastest kernels if
// this variable is unset or invalid. ActiveKernels() reads the variable only
// once. Servers call SelectKernels first and refuse to start on an error.
const KernelTable& ActiveKernels();

// True if rotations of tensors in main memory are faster when they process
// several memory pages at the same time. This is true on Intel's CPUs, but not
// on Zen 5 (docs/measurements/kernels.md). Other CPUs were not measured.
bool WalksPagesAtOnce();

}  // namespace posenc::simd
