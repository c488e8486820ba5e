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

// `forced`: the value of POSENC_FORCE_ISA; empty: the fastest. An unknown or
// unsupported name is INVALID_ARGUMENT, with a message that lists the names.
absl::StatusOr<const KernelTable*> SelectKernels(absl::string_view forced);

// The kernels that POSENC_FORCE_ISA names, or the fastest if it is unset or
// unusable; read once. Servers call SelectKernels first and refuse to start on
// an error.
const KernelTable& ActiveKernels();

}  // namespace posenc::simd
