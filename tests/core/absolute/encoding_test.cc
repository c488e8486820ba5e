// Values of every absolute encoding against __float128, from the formulas of
// absolute.proto.

#include "core/absolute/encoding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <quadmath.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "core/absolute/rows.h"
#include "core/absolute/trig_rows.h"
#include "tests/fixtures/core/absolute.h"
#include "tests/reference/float_formats.h"
#include "tests/reference/rope_reference.h"

namespace posenc::core {
namespace {

using reference::Quad;

// The definition: the float64 nearest to the formula in long double.
double Power(double base, long double exponent, double factor = 1) {
  return static_cast<double>(factor *
                             powl(static_cast<long double>(base), -exponent));
}

// Returns integers up to 2^26, and such integers with a fraction; half of each
// kind are negative.
std::vector<double> RandomPositions(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<double> positions;
  for (std::size_t i = 0; i < count; ++i) {
    const int bits = 1 + static_cast<int>(random() % 26);
    double p = static_cast<double>(random() >> (64 - bits));
    if (i % 2 != 0) p += std::ldexp(static_cast<double>(random() >> 32), -32);
    positions.push_back(i % 4 < 2 ? p : 0 - p);  // no negative zero
  }
  return positions;
}

constexpr int kPoints = 200'000;
constexpr int kFew = 2'000;  // for encodings that differ only in width

// The exact value of channel c in the row at position p.
using Channel = std::function<Quad(double p, int c)>;

// Counts values that are not the float32 nearest to the exact one.
int Misrounded(const AbsoluteEncoding& encoding, int dim, std::uint64_t seed,
               const Channel& exact, int points = kPoints) {
  const std::vector<double> positions = RandomPositions(points / dim + 8, seed);
  const std::vector<float> table = Build<float>(encoding, positions);
  int misrounded = 0;
  for (std::size_t t = 0; t < positions.size(); ++t) {
    for (int c = 0; c < dim; ++c) {
      misrounded +=
          table[t * dim + c] != static_cast<float>(exact(positions[t], c));
    }
  }
  return misrounded;
}

// sin or cos of p * w.
Quad Wave(bool cosine, double p, double w) {
  return cosine ? reference::Cos(p, w) : reference::Sin(p, w);
}

Channel SinusoidalChannel(const Sinusoidal& encoding) {
  return [=](double p, int c) -> Quad {
    const int d = encoding.dim;
    const int n = d / 2;
    const bool interleaved = encoding.order == SinusoidalOrder::kInterleaved;
    if (d % 2 != 0 && c == d - 1 && !encoding.odd_dim_sine) return 0;
    const int i = interleaved ? c / 2 : c % n;
    const bool second = interleaved ? c % 2 != 0 : c >= n;
    const bool cosine = second != (encoding.order == SinusoidalOrder::kCosSin);
    const long double exponent = encoding.endpoint
                                     ? static_cast<long double>(i) / (n - 1)
                                     : 2 * static_cast<long double>(i) / d;
    return Wave(cosine, p, Power(encoding.base.value_or(10000), exponent));
  };
}

TEST(AbsoluteTest, SinusoidsOfEveryOrderAreCorrectlyRounded) {
  for (const SinusoidalOrder order :
       {SinusoidalOrder::kInterleaved, SinusoidalOrder::kSinCos,
        SinusoidalOrder::kCosSin}) {
    const int wide = 127 + static_cast<int>(order);  // 128, 129, 130
    for (const int dim : {2, 4, 7, 64, 512, wide}) {
      for (const bool endpoint : {false, true}) {
        if (endpoint && dim < 4) continue;
        Sinusoidal encoding;
        encoding.dim = dim;
        encoding.order = order;
        encoding.endpoint = endpoint;
        EXPECT_EQ(Misrounded(encoding, dim, 1, SinusoidalChannel(encoding),
                             dim == wide ? kPoints : kFew),
                  0)
            << dim;
      }
    }
  }
}

TEST(AbsoluteTest, UnpairedSinesAreCorrectlyRounded) {
  Sinusoidal encoding;
  encoding.dim = 1001;  // more pairs than one block
  encoding.base = 5e5;
  encoding.order = SinusoidalOrder::kInterleaved;
  encoding.odd_dim_sine = true;
  EXPECT_EQ(Misrounded(encoding, 1001, 2, SinusoidalChannel(encoding)), 0);
}

// The formula's own error is at most 2^-59, which is 2^-6 of an ulp of float64:
// the exponent is rounded to 2^-64 and multiplied by ln(1e7) = 16.2, and powl
// may be off by an ulp of long double.
TEST(AbsoluteTest, FrequenciesAreTheFormulasToHalfAPlace) {
  for (const double base : {1.5, 100.0, 1e4, 5e5, 1e7}) {
    for (const int n : {1, 2, 3, 8, 64, 767}) {
      for (int i = 0; i < n; ++i) {
        const Quad exact = powq(base, -Quad(i) / n);
        EXPECT_LE(reference::UlpError(
                      GeometricFrequency(base, static_cast<long double>(i) / n),
                      exact),
                  0.5 + 0x1p-6)
            << base << ", " << i << "/" << n;
      }
    }
  }
}

Channel TimestepChannel(const Timestep& encoding) {
  return [=](double p, int c) -> Quad {
    const int n = encoding.dim / 2;
    if (c == 2 * n) return 0;
    const long double exponent =
        (c % n) / (static_cast<long double>(n) -
                   encoding.downscale_freq_shift.value_or(0));
    return Wave((c >= n) != encoding.cos_first, p,
                Power(encoding.max_period.value_or(10000), exponent,
                      encoding.scale.value_or(1)));
  };
}

TEST(AbsoluteTest, TimestepsAreCorrectlyRounded) {
  std::vector<Timestep> encodings(6);
  encodings[1].downscale_freq_shift = 1;
  encodings[2].cos_first = true;
  encodings[3].scale = 1000;
  encodings[4].downscale_freq_shift = 0.5;
  encodings[4].scale = -0.7;
  encodings[5].max_period = 77.5;
  encodings[5].downscale_freq_shift = -2;
  int dim = 60;
  for (Timestep& encoding : encodings) {
    encoding.dim = dim++;  // odd ones too
    EXPECT_EQ(Misrounded(encoding, encoding.dim, 3, TimestepChannel(encoding)),
              0)
        << encoding.dim;
  }
}

TEST(AbsoluteTest, TimestepsOfOneFrequencyNeedNoShift) {
  Timestep encoding;
  encoding.dim = 3;
  const std::vector<float> row = Build<float>(encoding, {0.25});
  EXPECT_THAT(row, testing::ElementsAre(static_cast<float>(sinq(0.25)),
                                        static_cast<float>(cosq(0.25)), 0));
}

// Removes whole turns, and multiplies the rest by 2 pi; the products have 106
// bits, and their sum is rounded to 113.
Quad Turn(bool cosine, Quad turns) {
  const Quad angle = 2 * M_PIq * (turns - rintq(turns));
  return cosine ? cosq(angle) : sinq(angle);
}

// Counts misrounded values of Fourier features with random positions. The
// elements of the matrix B have type T and the standard deviation `range`.
template <typename T>
int MisroundedFourier(int axes, int pairs, T range, bool cos_first) {
  std::mt19937_64 random(axes);
  std::vector<T> b(axes * pairs);
  for (T& value : b) {
    value = static_cast<T>(std::normal_distribution<double>(
        0, static_cast<double>(range))(random));
  }
  FourierFeatures encoding;
  encoding.cos_first = cos_first;
  encoding.frequencies = {kDtypeOf<T>, {axes, pairs}, b.data()};
  const int rows = kPoints / (2 * pairs) + 1;
  const std::vector<double> positions = RandomPositions(axes * rows, 5);
  const std::vector<float> table = Build<float>(encoding, positions);
  int misrounded = 0;
  for (int t = 0; t < rows; ++t) {
    for (int i = 0; i < pairs; ++i) {
      Quad turns = 0;
      for (int a = 0; a < axes; ++a) {
        turns += Quad(positions[a * rows + t]) * Quad(b[a * pairs + i]);
      }
      const float* const row = table.data() + t * 2 * pairs;
      misrounded += row[cos_first ? pairs + i : i] !=
                    static_cast<float>(Turn(false, turns));
      misrounded += row[cos_first ? i : pairs + i] !=
                    static_cast<float>(Turn(true, turns));
    }
  }
  return misrounded;
}

TEST(AbsoluteTest, FourierFeaturesAreCorrectlyRounded) {
  EXPECT_EQ(MisroundedFourier<double>(1, 64, 16, false), 0);
  EXPECT_EQ(MisroundedFourier<double>(2, 33, 1, true), 0);
  EXPECT_EQ(MisroundedFourier<float>(3, 128, 10, false), 0);
  EXPECT_EQ(MisroundedFourier<double>(2, 40, 5e4, false), 0);
}

// A product with 2 pi rounded to float64 would be off by 1e-9 here.
TEST(AbsoluteTest, WholeTurnsComeBackToZero) {
  const std::vector<double> b = {1, 0.5, 0.25, 3};
  FourierFeatures encoding;
  encoding.frequencies = {Dtype::kFloat64, {1, 4}, b.data()};
  const std::vector<double> row = Build<double>(encoding, {4000001});
  EXPECT_THAT(row, testing::ElementsAre(0, 0, 1, 0, 1, -1, 0, 1));
}

TEST(AbsoluteTest, Float64IsWithinTwoUlp) {
  const std::vector<double> positions = RandomPositions(500, 6);
  Timestep encoding;
  encoding.dim = 64;
  encoding.scale = 1000;
  const Channel exact = TimestepChannel(encoding);
  const std::vector<double> table = Build<double>(encoding, positions);
  for (std::size_t k = 0; k < table.size(); ++k) {
    EXPECT_LE(reference::UlpError(
                  table[k], exact(positions[k / 64], static_cast<int>(k % 64))),
              2)
        << k;
  }
}

TEST(AbsoluteTest, SixteenBitsAreRoundedOnceFromFloat64) {
  const std::vector<double> positions = RandomPositions(500, 7);
  Timestep encoding;
  encoding.dim = 64;
  const Channel exact = TimestepChannel(encoding);
  for (const bool half : {true, false}) {
    const std::vector<std::uint16_t> table = Build<std::uint16_t>(
        encoding, positions, half ? Dtype::kFloat16 : Dtype::kBfloat16);
    for (std::size_t k = 0; k < table.size(); ++k) {
      const auto value = static_cast<double>(
          exact(positions[k / 64], static_cast<int>(k % 64)));
      EXPECT_EQ(
          table[k],
          Encode16(half ? reference::kFloat16 : reference::kBfloat16, value))
          << value;
    }
  }
}

// Channel c of cell `index` on an axis of `width` channels.
float AxisValue(double p, int width, int c, double base = 10000) {
  const int n = width / 2;
  const double w = Power(base, 2 * static_cast<long double>(c % n) / width);
  return static_cast<float>(Wave(c >= n, p, w));
}

void CheckGrid(const SincosGrid& encoding) {
  const std::vector<float> table = Build<float>(encoding, {});
  const auto axes = static_cast<int>(encoding.extents.size());
  const int width = encoding.dim / axes;
  const float* row = table.data();
  for (int r = 0; r < encoding.leading_zero_rows; ++r, row += encoding.dim) {
    for (int c = 0; c < encoding.dim; ++c) ASSERT_EQ(row[c], 0);
  }
  std::vector<int> cell(axes, 0);
  for (; row != table.data() + table.size(); row += encoding.dim) {
    for (int c = 0; c < encoding.dim; ++c) {
      const int slot = c / width;
      const int axis = encoding.last_axis_first ? axes - 1 - slot : slot;
      const double step = encoding.steps.empty() ? 1 : encoding.steps[axis];
      ASSERT_EQ(row[c], AxisValue(cell[axis] * step, width, c % width,
                                  encoding.base.value_or(10000)));
    }
    for (int a = axes - 1; a >= 0 && ++cell[a] == encoding.extents[a]; --a) {
      cell[a] = 0;
    }
  }
  EXPECT_EQ(cell, std::vector<int>(axes, 0)) << "not every cell has a row";
}

TEST(AbsoluteTest, GridsOfOneToThreeAxesAreCorrectlyRounded) {
  CheckGrid({.dim = 6, .extents = {5}});
  CheckGrid({.dim = 16, .extents = {3, 4}});
  CheckGrid({.dim = 64,
             .extents = {14, 7},
             .base = 100.5,
             .last_axis_first = true,
             .leading_zero_rows = 2});
  CheckGrid({.dim = 36, .extents = {2, 3, 5}, .last_axis_first = true});
}

TEST(AbsoluteTest, GridStepsAreFractional) {
  CheckGrid({.dim = 32,
             .extents = {9, 20},
             .leading_zero_rows = 1,
             .steps = {0.4375, 1.7}});
}

TEST(AbsoluteTest, GridRowsMayStartAnywhere) {
  const SincosGrid encoding = {
      .dim = 8, .extents = {4, 3}, .leading_zero_rows = 2};
  const std::vector<float> whole = Build<float>(encoding, {});
  for (int first = 0; first <= 14; ++first) {
    std::vector<float> part((14 - first) * 8);
    AbsoluteTable(encoding, Dtype::kFloat32)
        .Fill(nullptr, first, {Dtype::kFloat32, {14 - first, 8}, part.data()});
    EXPECT_EQ(part, std::vector<float>(whole.begin() + first * 8, whole.end()));
  }
}

// Vaswani's sin, cos, sin, cos with exponent 2i/d, and tensor2tensor's halves
// with exponent i/(n - 1), agree only in the first channel.
TEST(AbsoluteTest, Disagreement14SinCosOrderAndDivisor) {
  Sinusoidal paper;
  paper.dim = 8;
  paper.order = SinusoidalOrder::kInterleaved;
  Sinusoidal tensor2tensor = paper;
  tensor2tensor.order = SinusoidalOrder::kSinCos;
  tensor2tensor.endpoint = true;
  Sinusoidal musicgen = tensor2tensor;
  musicgen.order = SinusoidalOrder::kCosSin;
  // The paper's frequencies 1e4^(-i/4) are 1, 0.1, 0.01 and 0.001. The last of
  // tensor2tensor's frequencies 1e4^(-i/3) is 1e-4.
  const auto sine = [](Quad x) { return static_cast<float>(sinq(x)); };
  const auto cosine = [](Quad x) { return static_cast<float>(cosq(x)); };
  const std::vector<float> a = Build<float>(paper, {1});
  EXPECT_THAT(a,
              testing::ElementsAre(sine(1), cosine(1), sine(Quad{1} / 10),
                                   cosine(Quad{1} / 10), sine(Quad{1} / 100),
                                   cosine(Quad{1} / 100), sine(Quad{1} / 1000),
                                   cosine(Quad{1} / 1000)));
  const std::vector<float> b = Build<float>(tensor2tensor, {1});
  const Quad third = powq(10, -Quad(4) / 3);
  EXPECT_THAT(
      b, testing::ElementsAre(sine(1), sine(third), sine(third * third),
                              sine(Quad{1} / 10000), cosine(1), cosine(third),
                              cosine(third * third), cosine(Quad{1} / 10000)));
  std::vector<float> swapped = Build<float>(musicgen, {1});
  std::rotate(swapped.begin(), swapped.begin() + 4, swapped.end());
  EXPECT_EQ(swapped, b);
}

// In MAE, the first half of the channels encodes the column, although the
// code's variable is named after the height. Other projects encode the row
// first.
TEST(AbsoluteTest, Disagreement15MaeAxisOrder) {
  SincosGrid mae = {.dim = 8, .extents = {2, 3}, .last_axis_first = true};
  SincosGrid row_first = mae;
  row_first.last_axis_first = false;
  const std::vector<float> a = Build<float>(mae, {});
  const std::vector<float> b = Build<float>(row_first, {});
  const std::vector<float> zero = {0, 0, 1, 1};
  const std::vector<float> two = {
      static_cast<float>(sinq(2)), static_cast<float>(sinq(Quad{2} / 100)),
      static_cast<float>(cosq(2)), static_cast<float>(cosq(Quad{2} / 100))};
  // Cell (0, 2).
  const auto part = [](const std::vector<float>& t, int at) {
    return std::vector<float>(t.begin() + at, t.begin() + at + 4);
  };
  EXPECT_EQ(part(a, 16), two);
  EXPECT_EQ(part(a, 20), zero);
  EXPECT_EQ(part(b, 16), zero);
  EXPECT_EQ(part(b, 20), two);
}

TEST(AbsoluteTest, NoRowsAreBuiltForNoPositions) {
  Timestep encoding;
  encoding.dim = 4;
  EXPECT_TRUE(Build<float>(encoding, {}).empty());
}

}  // namespace
}  // namespace posenc::core
