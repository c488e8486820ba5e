// Chooses the instruction set.

#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/simd/kernels.h"

namespace posenc::simd {

// The kernels that this CPU can run, slowest first: "sse2", "avx2", "avx512",
// "avx512_bf16".
const std::vector<const KernelTable*>& SupportedKernels();

// Returns the kernels with the name `forced` (the value of POSENC_FORCE_ISA),
// or the fastest kernels if `forced` is empty. INVALID_ARGUMENT for an unknown
// or unsupported name; the message lists the supported names.
absl::StatusOr<const KernelTable*> SelectKernels(absl::string_view forced);

// The kernels that POSENC_FORCE_ISA names, or the fastest kernels if this
// variable is unset or unusable. ActiveKernels() reads the variable only once.
// Servers call SelectKernels first and refuse to start on an error.
const KernelTable& ActiveKernels();

// True if rotations of tensors in main memory are faster when they process
// several memory pages at the same time. This is true on Intel's CPUs, but not
// on Zen 5 (docs/measurements/kernels.md). Other CPUs were not measured.
bool WalksPagesAtOnce();

}  // namespace posenc::simd
