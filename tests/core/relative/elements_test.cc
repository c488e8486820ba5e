// Converts runs of elements to and from float64, and compares the results with
// conversions of one element at a time.

#include "core/relative/elements.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "tests/fixtures/core/relative.h"

namespace posenc::core {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(StoreDoublesTest, RoundsOnceAsStoreDoubleDoes) {
  std::mt19937_64 generator(1);
  std::vector<double> values = {0,
                                -0.,
                                kInfinity,
                                -kInfinity,
                                65519.999,
                                65520,
                                -65504,
                                0x1p-24,
                                0x1p-25,
                                0x1.0000001p-25,
                                1 + 0x1p-11,
                                1 + 0x1p-11 + 0x1p-40,
                                1 + 0x1p-8,
                                1 + 0x1p-8 + 0x1p-40,
                                1e300,
                                -1e300,
                                3.4028235677973366e38,
                                1e-310,
                                0x1p-134,
                                0x1.0000001p-134};
  for (int n = 0; n < 200000; ++n) {
    const std::uint64_t bits = generator();
    const int exponent = static_cast<int>(bits % 300) - 160;
    const double value =
        std::ldexp(static_cast<double>(bits >> 11), exponent - 53);
    values.push_back(bits & 512 ? -value : value);
    // Halfway between float32 numbers, and close to halfway.
    values.push_back(static_cast<float>(value) *
                     (1 + std::ldexp(1, -static_cast<int>(8 + bits % 45))));
  }
  const auto n = static_cast<std::int64_t>(values.size());
  for (const Dtype dtype :
       {Dtype::kFloat16, Dtype::kBfloat16, Dtype::kFloat32, Dtype::kFloat64}) {
    OwnedTensor actual(dtype, {n});
    StoreDoubles(values.data(), n, dtype, actual.data());
    const OwnedTensor expected(dtype, {n}, values);
    EXPECT_EQ(actual.bytes(), expected.bytes()) << DtypeName(dtype);
    std::vector<double> read(n);
    LoadDoubles(actual.view(), 0, n, read.data());
    for (std::int64_t i = 0; i < n; ++i) ASSERT_EQ(read[i], expected[i]);
  }
  const double nan = std::nan("");
  for (const Dtype dtype : kFloatingDtypes) {
    OwnedTensor actual(dtype, {1});
    StoreDoubles(&nan, 1, dtype, actual.data());
    EXPECT_TRUE(std::isnan(actual[0]));
  }
}

}  // namespace
}  // namespace posenc::core
