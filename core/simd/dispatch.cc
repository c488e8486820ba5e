#include "core/simd/dispatch.h"

#include <algorithm>
#include <cstdlib>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/simd/kernel_tables.h"

namespace posenc::simd {
namespace {

constexpr const char* kNames[] = {"sse2", "avx2", "avx512", "avx512_bf16",
                                  "neon"};

#ifdef POSENC_HAS_avx512_bf16
const KernelTable& Avx512Bf16Table() {
  static const KernelTable table = [] {
    const KernelTable& bf16 = kAvx512Bf16Kernels;
    KernelTable kernels = kAvx512Kernels;
    kernels.name = bf16.name;
    std::copy_n(&bf16.rotate[kBf16][0][0], 4, &kernels.rotate[kBf16][0][0]);
    kernels.narrow[kBf16] = bf16.narrow[kBf16];
    return kernels;
  }();
  return table;
}
#endif

#ifdef __x86_64__
// Clang accepts the name "f16c" only from version 16 on. With an older Clang
// there is no check, because all CPUs with AVX2 have F16C.
bool HasF16c() {
#if defined(__clang__) && __clang_major__ < 16
  return true;
#else
  return __builtin_cpu_supports("f16c");
#endif
}

// __builtin_cpu_supports, unlike xsimd's own detection, also checks that the
// operating system saves the vector registers.
std::vector<const KernelTable*> DetectKernels() {
  std::vector<const KernelTable*> supported;
  __builtin_cpu_init();
#ifdef POSENC_HAS_sse2
  supported.push_back(&kSse2Kernels);  // part of x86-64
#endif
#ifdef POSENC_HAS_avx2
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
      HasF16c()) {
    supported.push_back(&kAvx2Kernels);
  }
#endif
  [[maybe_unused]] const bool avx512 =
      __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512cd") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
#ifdef POSENC_HAS_avx512
  if (avx512) supported.push_back(&kAvx512Kernels);
#endif
#ifdef POSENC_HAS_avx512_bf16
  if (avx512 && __builtin_cpu_supports("avx512bf16")) {
    supported.push_back(&Avx512Bf16Table());
  }
#endif
  return supported;
}
#else
// Every AArch64 CPU has NEON.
std::vector<const KernelTable*> DetectKernels() { return {&kNeonKernels}; }
#endif

const KernelTable& DetermineActiveKernels() {
  const char* forced = std::getenv("POSENC_FORCE_ISA");
  const absl::StatusOr<const KernelTable*> kernels =
      SelectKernels(forced == nullptr ? "" : forced);
  return kernels.ok() ? **kernels : *SupportedKernels().back();
}

}  // namespace

const std::vector<const KernelTable*>& SupportedKernels() {
  static const auto& supported = *new std::vector(DetectKernels());
  return supported;
}

absl::StatusOr<const KernelTable*> SelectKernels(absl::string_view forced) {
  const std::vector<const KernelTable*>& supported = SupportedKernels();
  if (forced.empty()) return supported.back();
  for (const KernelTable* kernels : supported) {
    if (forced == kernels->name) return kernels;
  }
  const std::string names =
      absl::StrJoin(supported, ", ", [](std::string* out, const auto* kernels) {
        out->append(kernels->name);
      });
  for (const char* known : kNames) {
    if (forced == known) {
      return absl::InvalidArgumentError(absl::StrCat(
          "POSENC_FORCE_ISA: \"", forced,
          "\" is not supported by this CPU or build; it supports ", names));
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat("POSENC_FORCE_ISA: \"", forced,
                   "\" is unknown; this CPU supports ", names));
}

bool WalksPagesAtOnce() {
#ifdef __x86_64__
  static const bool intel = __builtin_cpu_is("intel");
  return intel;
#else
  return false;
#endif
}

const KernelTable& ActiveKernels() {
  static const KernelTable& active = DetermineActiveKernels();
  return active;
}

}  // namespace posenc::simd
