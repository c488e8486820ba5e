// bfloat16 results that quick rounding gets wrong, at every place of a slice:
// halfway between two numbers, and subnormal.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/simd/dispatch.h"
#include "gtest/gtest.h"
#include "tests/fixtures/core/kernels.h"

namespace posenc::simd {
namespace {

constexpr std::size_t kTokens = 2, kHeads = 3;
constexpr int kOne = 0x3f80;  // its neighbour above is 1 + 2^-7

struct Pair {
  int x, y;
};

class RoundingTest : public reference::KernelTest<> {
 protected:
  // Rotates slices of ones by (1, 0), except that pair `place` of slice `slice`
  // is `in`, and its token's row has (1, sine) there. Expects `out` there, and
  // ones elsewhere.
  void ExpectPair(PairingIndex pairing, std::size_t pairs, std::size_t slice,
                  std::size_t place, Pair in, float sine, Pair out) {
    const std::size_t width = 2 * pairs;
    const auto first = slice * width + (pairing == kHalf ? place : 2 * place);
    const auto second = first + (pairing == kHalf ? pairs : 1);
    std::vector<std::uint16_t> numbers(kTokens * kHeads * width, kOne);
    numbers[first] = static_cast<std::uint16_t>(in.x);
    numbers[second] = static_cast<std::uint16_t>(in.y);
    std::vector<float> table;
    for (std::size_t t = 0; t < kTokens; ++t) {
      table.insert(table.end(), pairs, 1.0F);
      table.insert(table.end(), pairs, 0.0F);
    }
    const std::size_t token = slice / kHeads;
    table[token * width + pairs + place] = sine;
    std::vector<std::uint16_t> expected(numbers.size(), kOne);
    for (std::size_t h = 0; h < kHeads; ++h) {
      // All heads of the token share the row of cosines and sines. The other
      // heads have ones at this place.
      const std::size_t at =
          (token * kHeads + h) * width + (pairing == kHalf ? place : 2 * place);
      expected[at] = sine == 0 ? kOne : 0x3f7f;              // 1 - 2^-8
      expected[at + (pairing == kHalf ? pairs : 1)] = kOne;  // 1 + 2^-8
    }
    expected[first] = static_cast<std::uint16_t>(out.x);
    expected[second] = static_cast<std::uint16_t>(out.y);
    RotateJob job = {};
    job.src = job.dst = numbers.data();
    job.tokens = kTokens;
    job.heads = kHeads;
    job.pairs = pairs;
    job.head_stride = static_cast<std::ptrdiff_t>(width);
    job.token_stride = static_cast<std::ptrdiff_t>(kHeads * width);
    job.table = table.data();
    job.table_token_stride = static_cast<std::ptrdiff_t>(width);
    job.table_sine_offset = static_cast<std::ptrdiff_t>(pairs);
    kernels_->rotate[kBf16][pairing][pairing](job);
    ASSERT_EQ(numbers, expected)
        << "pairing " << pairing << ", " << pairs << " pairs, slice " << slice
        << ", pair " << place;
  }

  void ExpectEverywhere(Pair in, float sine, Pair out) {
    for (const PairingIndex pairing : {kHalf, kInterleaved}) {
      for (const std::size_t pairs : {5, 16, 24, 32, 40, 64, 128}) {
        for (std::size_t place = 0; place < pairs; ++place) {
          ExpectPair(pairing, pairs, place % (kTokens * kHeads), place, in,
                     sine, out);
        }
      }
    }
  }
};

TEST_P(RoundingTest, HalfwayGoesToTheEvenNumberBelow) {
  // 1 - 2^-8, and 1 + 2^-8.
  ExpectEverywhere({kOne, kOne}, 0x1p-8F, {0x3f7f, kOne});
}

TEST_P(RoundingTest, HalfwayGoesToTheEvenNumberAbove) {
  // 1 - 2^-8 - 2^-15, and 1 + 2^-7 + 2^-8.
  ExpectEverywhere({kOne, kOne + 1}, 0x1p-8F, {0x3f7f, kOne + 2});
}

TEST_P(RoundingTest, SubnormalNumbersAreKept) {
  ExpectEverywhere({0x0001, 0x8055}, 0, {0x0001, 0x8055});
}

TEST_P(RoundingTest, ZerosKeepTheirSigns) {
  ExpectEverywhere({0x8000, 0x8000}, 0, {0x0000, 0x8000});
}

INSTANTIATE_TEST_SUITE_P(InstructionSets, RoundingTest,
                         testing::ValuesIn(reference::kInstructionSets),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace posenc::simd
