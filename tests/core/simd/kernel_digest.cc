// Digests of the kernels' results for the same numbers on every machine:
// rotations of all dtypes, conversions, and cosines and sines in float64
// (posenc-exactness has those in float32). ./run neon compares the digests with
// those of another architecture.
//
//   posenc-kernel-digest
//
// Fails if the instruction sets of this machine differ.

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "core/simd/dispatch.h"
#include "tests/fixtures/core/random_jobs.h"

namespace posenc::simd {
namespace {

constexpr int kJobs = 2000;

// FNV-1a of 64 bits.
class Digest {
 public:
  template <typename T>
  void Add(const std::vector<T>& values) {
    const auto* const bytes =
        reinterpret_cast<const unsigned char*>(values.data());
    for (std::size_t i = 0; i < values.size() * sizeof(T); ++i) {
      value_ = (value_ ^ bytes[i]) * 0x100000001b3;
    }
  }
  std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325;
};

std::uint64_t Rotations(const KernelTable& kernels) {
  Digest digest;
  for (unsigned seed = 0; seed < kJobs; ++seed) {
    const reference::RandomJob job(seed);
    digest.Add(job.Run(reference::PlainWay(kernels)));
  }
  return digest.value();
}

// Numbers of all magnitudes, without NaN, whose payloads are unspecified.
std::vector<float> RandomFloats() {
  std::vector<float> floats;
  std::uint64_t state = 1;
  while (floats.size() < 100003) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const auto x =
        std::bit_cast<float>(static_cast<std::uint32_t>(state >> 32));
    if (!std::isnan(x)) floats.push_back(x);
  }
  return floats;
}

template <typename T>
void AddNarrowed(void (*narrow)(const float*, void*, std::size_t),
                 const std::vector<float>& floats, Digest* digest) {
  std::vector<T> narrowed(floats.size());
  narrow(floats.data(), narrowed.data(), floats.size());
  digest->Add(narrowed);
}

// Adds the results for codes up to `end`. The codes after `end` are NaNs.
template <typename T>
void AddWidened(void (*widen)(const void*, float*, std::size_t), int end,
                Digest* digest) {
  std::vector<T> codes;
  for (int code = 0; code <= end; ++code) codes.push_back(static_cast<T>(code));
  std::vector<float> wide(codes.size());
  widen(codes.data(), wide.data(), codes.size());
  digest->Add(wide);
}

std::uint64_t Conversions(const KernelTable& kernels) {
  Digest digest;
  const std::vector<float> floats = RandomFloats();
  AddNarrowed<std::uint16_t>(kernels.narrow[kF16], floats, &digest);
  AddNarrowed<std::uint16_t>(kernels.narrow[kBf16], floats, &digest);
  AddNarrowed<std::uint8_t>(kernels.narrow[kE4m3], floats, &digest);
  AddNarrowed<std::uint8_t>(kernels.narrow[kE4m3Finite], floats, &digest);
  AddNarrowed<std::uint8_t>(kernels.narrow[kE5m2], floats, &digest);
  AddNarrowed<std::uint8_t>(kernels.narrow[kE5m2Finite], floats, &digest);
  AddWidened<std::uint16_t>(kernels.widen[kF16], 0x7c00, &digest);
  AddWidened<std::uint16_t>(kernels.widen[kBf16], 0x7f80, &digest);
  AddWidened<std::uint8_t>(kernels.widen[kE4m3], 0x7e, &digest);
  AddWidened<std::uint8_t>(kernels.widen[kE5m2], 0x7c, &digest);
  return digest.value();
}

std::uint64_t Angles(const KernelTable& kernels) {
  constexpr std::size_t kPairs = 67;
  std::vector<double> hi(kPairs), mid(kPairs), lo(kPairs);
  for (std::size_t i = 0; i < kPairs; ++i) {
    const auto n = static_cast<double>(i + 1);
    hi[i] = n * 0x1p-9;
    mid[i] = n * 0x1.2345p-33;
    lo[i] = n * 0x1.6789abcdefp-58;
  }
  Digest digest;
  for (double position = -1e6 + 0.25; position < 1e6; position += 9973) {
    const double factor = 1.25;
    TrigRow row = {};
    row.position = &position;
    row.turns_hi = hi.data();
    row.turns_mid = mid.data();
    row.turns_lo = lo.data();
    row.axes = 1;
    row.n = kPairs;
    row.factor = &factor;
    std::vector<double> cos(kPairs), sin(kPairs);
    kernels.trig_row_f64(row, cos.data(), sin.data());
    digest.Add(cos);
    digest.Add(sin);
  }
  return digest.value();
}

int Main() {
  const struct {
    const char* what;
    std::uint64_t (*digest)(const KernelTable&);
  } parts[] = {{"rotations", Rotations},
               {"conversions", Conversions},
               {"angles", Angles}};
  for (const auto& part : parts) {
    const std::uint64_t digest = part.digest(*SupportedKernels().front());
    for (const KernelTable* kernels : SupportedKernels()) {
      if (part.digest(*kernels) == digest) continue;
      std::fprintf(stderr, "%s of %s differ\n", part.what, kernels->name);
      return 1;
    }
    std::printf("%s %016llx\n", part.what,
                static_cast<unsigned long long>(digest));
  }
  return 0;
}

}  // namespace
}  // namespace posenc::simd

int main() { return posenc::simd::Main(); }
