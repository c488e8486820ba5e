// posenc-core-bench: the speed of rotation and of tables, as a ratio to memcpy
// and memset of the same bytes. 1.00 is as fast as the copy; the ratio, unlike
// a time, can be compared between machines and noisy runs.
//
// Each instruction set is measured in a process of its own, because a process
// chooses one when it starts. Rounds of the code and of its yardstick take
// turns; the median of their ratios is printed.

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "core/model/source.h"
#include "core/rope/apply.h"
#include "core/rope/table.h"
#include "core/simd/dispatch.h"

namespace posenc {
namespace {

using core::Dtype;
using core::Pairing;

constexpr int kRounds = 9;

struct Case {
  std::int64_t tokens;  // of [1, tokens, 32, 128]; 0: the table
  Dtype dtype;
  Pairing pairing;
};

struct Result {
  double ratio;      // yardstick's time / our time
  double gigabytes;  // per second, of the output
};

std::vector<Case> Cases() {
  std::vector<Case> cases;
  // 64 MiB of float32 from and to memory; and 16 tokens, 256 KiB of float32,
  // so that source and destination fit a second-level cache together.
  for (const std::int64_t tokens : {4096, 16})
    for (const Dtype dtype :
         {Dtype::kFloat32, Dtype::kBfloat16, Dtype::kFloat16, Dtype::kFloat64})
      for (const Pairing pairing : {Pairing::kHalfSplit, Pairing::kInterleaved})
        cases.push_back({tokens, dtype, pairing});
  cases.push_back({0, Dtype::kFloat32, Pairing::kHalfSplit});
  return cases;
}

// Memory whose pages are in place: page faults would cost more than the work.
struct Buffer {
  explicit Buffer(std::size_t size) {
    constexpr std::size_t kHugePage = std::size_t{2} << 20;
    const std::size_t whole = (size + kHugePage - 1) / kHugePage * kHugePage;
    data.reset(static_cast<std::byte*>(std::aligned_alloc(kHugePage, whole)));
    if (data == nullptr) std::abort();
    madvise(data.get(), whole, MADV_HUGEPAGE);
    std::memset(data.get(), 0, whole);
  }
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  std::unique_ptr<std::byte, Free> data;
};

double Seconds(const std::function<void()>& work, int repeats) {
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < repeats; ++i) work();
  const std::chrono::duration<double> elapsed =
      std::chrono::steady_clock::now() - start;
  return elapsed.count() / repeats;
}

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2,
                   values.end());
  return values[values.size() / 2];
}

Result Compare(std::size_t bytes, const std::function<void()>& yardstick,
               const std::function<void()>& work) {
  // Some hundred microseconds at least, for the clock's sake.
  const int repeats =
      static_cast<int>(std::max<std::size_t>(1, (8 << 20) / bytes));
  std::vector<double> ratios, times;
  yardstick();
  work();
  for (int round = 0; round < kRounds; ++round) {
    const double base = Seconds(yardstick, repeats);
    const double time = Seconds(work, repeats);
    ratios.push_back(base / time);
    times.push_back(time);
  }
  return {Median(ratios), static_cast<double>(bytes) / Median(times) / 1e9};
}

void Require(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "posenc-core-bench: %s\n", status.ToString().c_str());
  std::exit(1);
}

Result MeasureRotation(const Case& c) {
  const core::Shape shape = {1, c.tokens, 32, 128};
  const std::size_t elements = c.tokens * 32 * 128;
  const std::size_t bytes = elements * core::DtypeSize(c.dtype);
  const Buffer source(bytes), target(bytes);
  std::byte* const src = source.data.get();
  std::byte* const dst = target.data.get();
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> uniform(-4, 4);
  // One head's worth of numbers, again and again.
  const core::TensorView head{c.dtype, {128}, src};
  for (int i = 0; i < 128; ++i) core::StoreDouble(uniform(random), head, i);
  const std::size_t head_bytes = 128 * core::DtypeSize(c.dtype);
  for (std::size_t at = head_bytes; at < bytes; at += head_bytes) {
    std::memcpy(src + at, src, head_bytes);
  }
  // Frequencies are given: small tensors would measure powl instead.
  core::ExplicitFrequencies frequencies;
  for (int i = 0; i < 64; ++i) {
    frequencies.values.push_back(std::pow(10000.0, -i / 64.0));
  }
  core::RopeSpec spec;
  spec.pairing = c.pairing;
  spec.scaling = frequencies;
  core::ApplyRopeArgs args;
  args.rope = core::LookupOf(spec);
  args.positions = core::StartPosition{0};
  const core::ConstTensorView in{c.dtype, shape, src};
  const core::TensorView out{c.dtype, shape, dst};
  return Compare(
      bytes, [&] { std::memcpy(dst, src, bytes); },
      [&] { Require(core::ApplyRope(args, &in, &out, nullptr, nullptr)); });
}

Result MeasureTable() {
  constexpr std::int64_t kRows = 131072, kPairs = 64;
  core::RopeSpec spec;
  spec.pairing = Pairing::kHalfSplit;
  spec.rotary_dim = 2 * kPairs;
  const absl::StatusOr<core::ResolvedRope> rope = core::ResolveSpec(
      spec, 2 * kPairs, std::nullopt, core::MissingLength::kError);
  Require(rope.status());
  const absl::StatusOr<core::TokenPositions> positions = core::ExpandPositions(
      core::StartPosition{0}, {1, kRows, false}, 1, false);
  Require(positions.status());
  constexpr std::size_t kBytes = kRows * kPairs * sizeof(float);
  const Buffer table(2 * kBytes);
  std::byte* const data = table.data.get();
  const core::TensorView cos{Dtype::kFloat32, {kRows, kPairs}, data};
  const core::TensorView sin{Dtype::kFloat32, {kRows, kPairs}, data + kBytes};
  return Compare(
      2 * kBytes, [&] { std::memset(data, 1, 2 * kBytes); },
      [&] {
        Require(core::BuildRopeTable(*rope, *positions,
                                     core::TableLayout::kHalf,
                                     core::TensorRole::kQuery, cos, sin));
      });
}

// Measures every case in a child process that uses `isa`.
std::vector<Result> MeasureAll(const char* isa,
                               const std::vector<Case>& cases) {
  int ends[2];
  if (pipe(ends) != 0) std::abort();
  const pid_t child = fork();
  if (child < 0) std::abort();
  if (child == 0) {
    setenv("POSENC_FORCE_ISA", isa, 1);
    if (std::strcmp(simd::ActiveKernels().name, isa) != 0) std::abort();
    for (const Case& c : cases) {
      const Result result = c.tokens > 0 ? MeasureRotation(c) : MeasureTable();
      if (write(ends[1], &result, sizeof(result)) != sizeof(result)) _exit(1);
    }
    _exit(0);
  }
  close(ends[1]);
  std::vector<Result> results;
  Result result;
  while (read(ends[0], &result, sizeof(result)) == sizeof(result)) {
    results.push_back(result);
  }
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (status != 0 || results.size() != cases.size()) {
    std::fprintf(stderr, "posenc-core-bench: measuring %s failed\n", isa);
    std::exit(1);
  }
  return results;
}

void Print(const std::vector<Case>& cases,
           const std::vector<const simd::KernelTable*>& isas,
           const std::vector<std::vector<Result>>& results) {
  const char* const rule = "  ";
  const auto heading = [&](const char* title) {
    std::printf("\n%-36s", title);
    for (const simd::KernelTable* isa : isas) {
      std::printf("%s%12s", rule, isa->name);
    }
    std::printf("  %10s\n", "GB/s");
  };
  std::int64_t tokens = -1;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const Case& c = cases[i];
    if (c.tokens != tokens) {
      tokens = c.tokens;
      heading(tokens == 0 ? "table, ratio to memset"
                          : ("rotation [1, " + std::to_string(tokens) +
                             ", 32, 128] / memcpy")
                                .c_str());
    }
    std::string name = "131072 x 64, cos and sin, float32";
    if (tokens > 0) {
      name = std::string(core::DtypeName(c.dtype));
      name.resize(10, ' ');
      name += c.pairing == Pairing::kHalfSplit ? "half-split" : "interleaved";
    }
    std::printf("  %-34s", name.c_str());
    for (const std::vector<Result>& isa : results) {
      std::printf("%s%12.2f", rule, isa[i].ratio);
    }
    std::printf("  %10.1f\n", results.back()[i].gigabytes);
  }
}

}  // namespace
}  // namespace posenc

int main() {
  const std::vector<posenc::Case> cases = posenc::Cases();
  const auto& isas = posenc::simd::SupportedKernels();
  std::printf(
      "One thread, out of place, rows computed on the way; median of %d "
      "rounds.\n1.00 is the speed of memcpy (tables: memset) of the same "
      "bytes; GB/s of output: %s.\n",
      posenc::kRounds, isas.back()->name);
  std::fflush(stdout);
  std::vector<std::vector<posenc::Result>> results;
  for (const posenc::simd::KernelTable* isa : isas) {
    results.push_back(posenc::MeasureAll(isa->name, cases));
  }
  posenc::Print(cases, isas, results);
}
