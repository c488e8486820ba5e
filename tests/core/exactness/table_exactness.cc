// Counts the float32 values of rotary tables that are not correctly rounded.
//
//   posenc-exactness [MILLIONS [digest]]
//
// Oracle: libquadmath's sine and cosine of position * frequency, a product that
// 113 bits hold exactly. Positions are up to 2^26, also negative and
// fractional. Prints a digest of all values, which must be the same under each
// POSENC_FORCE_ISA. With `digest` it only computes the digest.

#include <quadmath.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "core/rope/frequencies.h"
#include "core/rope/table.h"
#include "core/simd/dispatch.h"

namespace posenc {
namespace {

constexpr double kBases[] = {1e4, 5e5, 1e6, 1e7};
constexpr int kRows = 1024;
constexpr int kPairs = 64;
constexpr std::int64_t kValuesPerBlock = std::int64_t{2} * kRows * kPairs;

enum PositionKind {
  kConsecutive,
  kIntegers,
  kNegativeIntegers,
  kSixtyFourths,
  kReals,
  kPositionKinds,
};

// 1024 positions of one kind.
std::vector<double> BlockPositions(std::int64_t block) {
  std::mt19937_64 random(static_cast<std::uint64_t>(block));
  const double reach = 0x1p26;
  std::uniform_int_distribution<std::int64_t> integer(0, std::int64_t{1} << 26);
  std::uniform_real_distribution<double> real(-reach, reach);
  const double first = static_cast<double>(integer(random) - kRows);
  std::vector<double> positions(kRows);
  for (int row = 0; row < kRows; ++row) {
    switch (block % kPositionKinds) {
      case kConsecutive:
        positions[row] = first + row;
        break;
      case kIntegers:
        positions[row] = static_cast<double>(integer(random));
        break;
      case kNegativeIntegers:
        positions[row] = -static_cast<double>(integer(random));
        break;
      case kSixtyFourths:
        positions[row] = static_cast<double>(integer(random)) / 64;
        break;
      default:
        positions[row] = real(random);
    }
  }
  return positions;
}

// Whether `value` is the float nearest `exact`.
bool IsNearest(float value, __float128 exact) {
  return static_cast<float>(exact) == value;
}

struct Count {
  std::int64_t misrounded = 0;
  std::uint64_t digest = 0xcbf29ce484222325;  // FNV-1a

  void Add(float value) {
    std::uint32_t bits;
    std::memcpy(&bits, &value, sizeof(bits));
    digest = (digest ^ bits) * 0x100000001b3;
  }
};

Count CountBlock(std::int64_t block, bool digest_only) {
  core::RopeSpec spec;
  spec.rotary_dim = 2 * kPairs;
  spec.rope_theta = kBases[(block / kPositionKinds) % std::size(kBases)];
  spec.pairing = core::Pairing::kHalfSplit;
  const absl::StatusOr<core::ResolvedRope> rope =
      core::ResolveSpec(spec, 0, std::nullopt, core::MissingLength::kError);
  if (!rope.ok()) {
    std::fprintf(stderr, "%s\n", rope.status().ToString().c_str());
    std::exit(1);
  }
  const core::CosSinEvaluator evaluator(*rope, core::Direction::kForward,
                                        core::TensorRole::kKey, nullptr);
  Count count;
  const std::vector<double> positions = BlockPositions(block);
  std::vector<float> rows(std::size_t{2} * kRows * kPairs);
  // Evaluates rows like a table: consecutive rows by anchors, and single rows
  // directly.
  core::CosSinEvaluator::Anchor anchor(kPairs);
  evaluator.Rows(positions, rows.data(), rows.data() + kPairs, 2 * kPairs,
                 false, &anchor);
  for (int t = 0; t < kRows; ++t) {
    const double position = positions[t];
    const float* const row = rows.data() + std::size_t{2} * t * kPairs;
    for (int i = 0; i < kPairs; ++i) {
      const float cosine = row[i], sine = row[kPairs + i];
      count.Add(cosine);
      count.Add(sine);
      if (digest_only) continue;
      __float128 exact_sine, exact_cosine;
      sincosq(static_cast<__float128>(position) * rope->inv_freq[i],
              &exact_sine, &exact_cosine);
      count.misrounded += !IsNearest(cosine, exact_cosine);
      count.misrounded += !IsNearest(sine, exact_sine);
    }
  }
  return count;
}

int Main(int argc, char** argv) {
  const std::int64_t millions = argc > 1 ? std::atoll(argv[1]) : 100;
  const bool digest_only = argc > 2 && std::string(argv[2]) == "digest";
  if (millions < 1) {
    std::fputs("usage: posenc-exactness [MILLIONS [digest]]\n", stderr);
    return 2;
  }
  const std::int64_t blocks =
      (millions * 1'000'000 + kValuesPerBlock - 1) / kValuesPerBlock;
  std::vector<Count> counts(blocks);
  std::atomic<std::int64_t> next{0};
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < std::max(1u, std::thread::hardware_concurrency());
       ++i) {
    threads.emplace_back([&] {
      for (std::int64_t block; (block = next.fetch_add(1)) < blocks;) {
        counts[block] = CountBlock(block, digest_only);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();

  std::int64_t misrounded = 0;
  std::uint64_t digest = 0;
  for (const Count& count : counts) {
    misrounded += count.misrounded;
    digest = (digest ^ count.digest) * 0x100000001b3;
  }
  std::printf("%s: %lld values, digest %016llx", simd::ActiveKernels().name,
              static_cast<long long>(blocks * kValuesPerBlock),
              static_cast<unsigned long long>(digest));
  if (!digest_only) {
    std::printf(", %lld misrounded", static_cast<long long>(misrounded));
  }
  std::printf("\n");
  return misrounded == 0 ? 0 : 1;
}

}  // namespace
}  // namespace posenc

int main(int argc, char** argv) { return posenc::Main(argc, argv); }
