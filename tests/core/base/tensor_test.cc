// Elements of every dtype, and shapes that overflow.

#include "core/base/tensor.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/reference/float_formats.h"

namespace posenc::core {
namespace {

std::uint16_t Stored(double value, Dtype dtype) {
  char bytes[3] = {};
  StoreDouble(value, {dtype, {1}, bytes + 1}, 0);  // misaligned
  std::uint16_t bits;
  std::memcpy(&bits, bytes + 1, sizeof(bits));
  return bits;
}

double Read(std::uint16_t bits, Dtype dtype) {
  return ElementAsDouble({dtype, {1}, &bits}, 0);
}

class Format16Test : public ::testing::TestWithParam<Dtype> {};

TEST_P(Format16Test, EveryValueComesBack) {
  for (int bits = 0; bits < 0x10000; ++bits) {
    const double value = Read(bits, GetParam());
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(Read(Stored(value, GetParam()), GetParam())));
    } else {
      ASSERT_EQ(Stored(value, GetParam()), bits);
    }
  }
}

TEST_P(Format16Test, RoundsOnceToNearestEven) {
  for (int bits = 0;
       Read(bits + 1, GetParam()) < std::numeric_limits<double>::infinity();
       ++bits) {
    const double low = Read(bits, GetParam());
    const double high = Read(bits + 1, GetParam());
    const double middle = (low + high) / 2;  // exact in float64
    const int even = bits % 2 == 0 ? bits : bits + 1;
    ASSERT_EQ(Stored(middle, GetParam()), even);
    ASSERT_EQ(Stored(std::nextafter(middle, 0), GetParam()), bits);
    ASSERT_EQ(Stored(std::nextafter(middle, 1e300), GetParam()), bits + 1);
    ASSERT_EQ(Stored(-middle, GetParam()), 0x8000 | even);
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, Format16Test,
                         ::testing::Values(Dtype::kFloat16, Dtype::kBfloat16));

struct Float8 {
  Dtype dtype;
  const reference::Format8* format;
};
constexpr Float8 kFloat8[] = {{Dtype::kFloat8E4m3fn, &reference::kE4m3},
                              {Dtype::kFloat8E5m2, &reference::kE5m2}};

TEST(Float8Test, EveryCodeIsItsNumberAndComesBack) {
  for (const auto& [dtype, format] : kFloat8) {
    for (int code = 0; code < 256; ++code) {
      const double expected = Decode8(*format, static_cast<std::uint8_t>(code));
      const double value = Read(static_cast<std::uint16_t>(code), dtype);
      if (std::isnan(expected)) {
        EXPECT_TRUE(std::isnan(value)) << code;
        EXPECT_EQ(Stored(value, dtype), 0x7f) << code;
      } else {
        EXPECT_EQ(value, expected) << code;
        EXPECT_EQ(Stored(value, dtype), code);
      }
    }
  }
}

TEST(Float8Test, RoundsOnceToNearestEvenAndOverflows) {
  for (const auto& [dtype, format] : kFloat8) {
    // The last midpoint is between the largest number and the next one.
    for (int code = 0; code <= format->largest; ++code) {
      const double here = Magnitude8(*format, code);
      const double middle = (here + Magnitude8(*format, code + 1)) / 2;
      for (const double x :
           {middle, std::nextafter(middle, 0), std::nextafter(middle, 1e300)}) {
        EXPECT_EQ(Stored(x, dtype), Encode8(*format, x, false)) << x;
        EXPECT_EQ(Stored(-x, dtype), Encode8(*format, -x, false)) << -x;
      }
    }
    for (const double x : {1e300, 1e-300, -0.0, 1e9}) {
      EXPECT_EQ(Stored(x, dtype), Encode8(*format, x, false)) << x;
    }
  }
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(Stored(infinity, Dtype::kFloat8E4m3fn), 0x7f);
  EXPECT_EQ(Stored(-infinity, Dtype::kFloat8E4m3fn), 0x7f);
  EXPECT_EQ(Stored(-infinity, Dtype::kFloat8E5m2), 0xfc);
}

TEST(TensorTest, EveryInt8ComesBack) {
  for (int number = -128; number <= 127; ++number) {
    EXPECT_EQ(Stored(number, Dtype::kInt8), number & 0xff);
    EXPECT_EQ(Read(static_cast<std::uint16_t>(number & 0xff), Dtype::kInt8),
              number);
  }
  EXPECT_EQ(core::DtypeSize(Dtype::kInt8), 1u);
  EXPECT_EQ(core::DtypeName(Dtype::kInt8), "int8");
}

TEST(StoreDoublesTest, RoundsOnceToNearestEven) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  std::mt19937_64 generator(1);
  std::vector<double> values = {0,
                                -0.,
                                infinity,
                                -infinity,
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
  for (const auto& [dtype, format] :
       {std::pair(Dtype::kFloat16, reference::kFloat16),
        std::pair(Dtype::kBfloat16, reference::kBfloat16)}) {
    std::vector<std::uint16_t> stored(values.size());
    StoreDoubles(values.data(), n, dtype, stored.data());
    std::vector<double> read(values.size());
    LoadDoubles({dtype, {n}, stored.data()}, 0, n, read.data());
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(stored[i], Encode16(format, values[i])) << values[i];
      ASSERT_EQ(read[i], Decode16(format, stored[i]));
    }
  }
  std::vector<float> stored(values.size());
  StoreDoubles(values.data(), n, Dtype::kFloat32, stored.data());
  std::vector<double> read(values.size());
  LoadDoubles({Dtype::kFloat32, {n}, stored.data()}, 0, n, read.data());
  for (std::size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(stored[i], static_cast<float>(values[i]));
    ASSERT_EQ(read[i], static_cast<double>(stored[i]));
  }
}

TEST(StoreDoublesTest, NansStayNans) {
  const double nan = std::nan("");
  for (const Dtype dtype :
       {Dtype::kFloat16, Dtype::kBfloat16, Dtype::kFloat32, Dtype::kFloat64}) {
    char bytes[8];
    StoreDoubles(&nan, 1, dtype, bytes);
    EXPECT_TRUE(std::isnan(ElementAsDouble({dtype, {1}, bytes}, 0)));
  }
}

TEST(TensorTest, KnownBitPatterns) {
  EXPECT_EQ(Stored(1, Dtype::kFloat16), 0x3c00);
  EXPECT_EQ(Stored(65504, Dtype::kFloat16), 0x7bff);
  EXPECT_EQ(Stored(65519.99, Dtype::kFloat16), 0x7bff);
  EXPECT_EQ(Stored(65520, Dtype::kFloat16), 0x7c00);
  EXPECT_EQ(Stored(1e300, Dtype::kFloat16), 0x7c00);
  EXPECT_EQ(Stored(0x1p-24, Dtype::kFloat16), 0x0001);
  EXPECT_EQ(Stored(1, Dtype::kBfloat16), 0x3f80);
  EXPECT_EQ(Stored(-3.140625, Dtype::kBfloat16), 0xc049);
  EXPECT_EQ(Stored(-0.0, Dtype::kBfloat16), 0x8000);
}

TEST(TensorTest, ReadsEveryDtypeMisaligned) {
  char bytes[17];
  const auto read = [&](Dtype dtype, auto value) {
    std::memcpy(bytes + 1 + sizeof(value), &value, sizeof(value));
    return ElementAsDouble({dtype, {2}, bytes + 1}, 1);
  };
  EXPECT_EQ(read(Dtype::kFloat32, 1.5f), 1.5);
  EXPECT_EQ(read(Dtype::kFloat64, -2.25), -2.25);
  EXPECT_EQ(read(Dtype::kInt32, std::int32_t{-7}), -7);
  EXPECT_EQ(read(Dtype::kInt64, std::int64_t{1} << 40), 0x1p40);
}

TEST(ShapeToStringTest, LongShapesAreCut) {
  EXPECT_EQ(ShapeToString({}), "[]");
  EXPECT_EQ(ShapeToString({2, 8, 4, 64}), "[2, 8, 4, 64]");
  EXPECT_EQ(ShapeToString(Shape(16, 1)),
            "[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]");
  EXPECT_EQ(ShapeToString(Shape(5000, 1)),
            "[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, and 4984 more]");
}

TEST(ElementCountTest, OverflowBesideZerosSaysSo) {
  const auto text = [](const Shape& shape) {
    return std::string(ElementCount(shape).status().message());
  };
  constexpr std::int64_t kMost = std::int64_t{1} << 62;
  for (const Shape& shape : {Shape{kMost, 2, 0}, Shape{0, kMost, 2}}) {
    EXPECT_NE(text(shape).find("elements without its extent of 0; send less"),
              std::string::npos)
        << text(shape);
  }
  EXPECT_NE(text({kMost, 2}).find("more than 2^62 elements; send less"),
            std::string::npos);
}

TEST(ElementCountTest, ZerosDoNotExcuseOverflow) {
  EXPECT_EQ(*ElementCount({}), 1);
  EXPECT_EQ(*ElementCount({2, 3, 4}), 24);
  EXPECT_EQ(*ElementCount({std::int64_t{1} << 62}), std::int64_t{1} << 62);
  EXPECT_EQ(*ElementCount({0, std::int64_t{1} << 62}), 0);
  EXPECT_FALSE(ElementCount({std::int64_t{1} << 62, 2, 0}).ok());
  EXPECT_FALSE(
      ElementCount({std::int64_t{1} << 32, std::int64_t{1} << 32}).ok());
  const auto negative = ElementCount({2, -1});
  ASSERT_FALSE(negative.ok());
  EXPECT_EQ(GetErrorDetails(negative.status())->field, "shape");
  EXPECT_THAT(std::string(negative.status().message()),
              ::testing::HasSubstr("-1"));
}

}  // namespace
}  // namespace posenc::core
