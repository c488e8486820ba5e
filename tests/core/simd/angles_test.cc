// Sums of angles: their rows in doubt, and their values.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "core/simd/dispatch.h"
#include "gtest/gtest.h"
#include "tests/fixtures/core/kernels.h"

namespace posenc::simd {
namespace {

constexpr std::size_t kRows = 32;
// DeltaRows::kError.
constexpr double kError = 9 * 0x1p-52;

class AnglesTest : public reference::KernelTest<> {};

// A call's arguments, initially 0, and its results.
struct Sums {
  explicit Sums(std::size_t n)
      : n(n),
        pitch((n + 15) / 16 * 16),
        cos(pitch),
        sin(pitch),
        deltas(kRows * 2 * pitch),
        results(2 * kRows * n + 16) {}

  double& delta_cos(std::size_t row, std::size_t i) {
    return deltas[2 * row * pitch + i];
  }
  double& delta_sin(std::size_t row, std::size_t i) {
    return deltas[(2 * row + 1) * pitch + i];
  }
  float* Cosines() {
    void* at = results.data();
    std::size_t space = results.size() * sizeof(float);
    return static_cast<float*>(
        std::align(64, 2 * kRows * n * sizeof(float), at, space));
  }
  float* Sines() { return Cosines() + kRows * n; }

  std::uint32_t Add(const KernelTable& kernels, std::size_t rows, double error,
                    bool negate, bool stream) {
    const std::uint32_t doubt =
        kernels.add_angles(Call(rows, error, negate, stream), Cosines(),
                           Sines(), static_cast<std::ptrdiff_t>(n));
    kernels.end_streams();
    return doubt;
  }
  AngleSums Call(std::size_t rows, double error, bool negate,
                 bool stream) const {
    AngleSums sums = {};
    sums.cos = cos.data();
    sums.sin = sin.data();
    sums.deltas = deltas.data();
    sums.pitch = pitch;
    sums.rows = rows;
    sums.n = n;
    sums.error = error;
    sums.negate = negate;
    sums.stream = stream;
    return sums;
  }

  const std::size_t n, pitch;
  std::vector<double> cos, sin, deltas;
  std::vector<float> results;
};

// The product with (1, 0) is the anchor itself, so results are known exactly.
// Cosines and sines of all other pairs are 1/2 and 3/4, which are exact in
// float32.
Sums OfKnownResults(std::size_t n) {
  Sums sums(n);
  for (std::size_t i = 0; i < n; ++i) {
    sums.cos[i] = 0.5;
    sums.sin[i] = 0.75;
    for (std::size_t row = 0; row < kRows; ++row) sums.delta_cos(row, i) = 1;
  }
  return sums;
}

TEST_P(AnglesTest, NumbersHalfwayBetweenFloatsAreInDoubt) {
  for (const std::size_t n : {1, 8, 15, 16, 24, 40, 64, 80, 100, 128}) {
    for (std::size_t place = 0; place < n; ++place) {
      for (const int exponent : {0, -1, -5, -10, -11, -12, -20}) {
        const double ulp = std::ldexp(0x1p-23, exponent - 1);  // below 1
        const double halfway = std::ldexp(0.75, exponent) + ulp / 2;
        for (const double off : {-0.99, 0.0, 0.99}) {
          Sums sums = OfKnownResults(n);
          sums.cos[place] = halfway + off * kError;
          EXPECT_EQ(sums.Add(*kernels_, kRows, kError, false, false), ~0u)
              << n << " " << place << " " << exponent << " " << off;
        }
      }
    }
  }
}

TEST_P(AnglesTest, NumbersAwayFromHalfwayAreNotInDoubt) {
  for (const std::size_t n : {1, 8, 15, 16, 24, 40, 64, 80, 100, 128}) {
    for (const int exponent : {0, -1, -5, -10, -12, -20}) {
      const double ulp = std::ldexp(0x1p-23, exponent - 1);
      for (const double part : {0.0, 0.1, 0.49, 0.51, 0.9}) {
        // The exact check uses twice the error.
        if (std::fabs(part - 0.5) * ulp < 4 * kError) continue;
        for (std::size_t place = 0; place < n; ++place) {
          Sums sums = OfKnownResults(n);
          const double result = std::ldexp(0.75, exponent) + part * ulp;
          sums.sin[place] = result;
          EXPECT_EQ(sums.Add(*kernels_, kRows, kError, false, false), 0)
              << n << " " << place << " " << exponent << " " << part;
          for (std::size_t row = 0; row < kRows; ++row) {
            EXPECT_EQ(sums.Sines()[row * n + place],
                      static_cast<float>(result));
          }
        }
      }
    }
  }
}

TEST_P(AnglesTest, AnglesOfZeroAreNotInDoubt) {
  for (const std::size_t n : {1, 8, 15, 16, 24, 40, 64, 80, 100, 128}) {
    for (std::size_t place = 0; place < n; ++place) {
      // The factor is halfway between floats. CosSinEvaluator::Row() would
      // round it the same way, so there is no doubt.
      constexpr double kFactor = 1 + 0x1p-24;
      Sums sums = OfKnownResults(n);
      sums.cos[place] = kFactor;
      sums.sin[place] = 0;
      // In one row the delta is not 0.
      sums.delta_sin(5, place) = 0x1p-60;
      EXPECT_EQ(sums.Add(*kernels_, kRows, kError, false, false), 1u << 5)
          << n << " " << place;
      EXPECT_EQ(sums.Sines()[place], 0);
      EXPECT_EQ(sums.Cosines()[place], static_cast<float>(kFactor));
    }
  }
}

// If a row is not in doubt, all numbers within the error of one of its values
// round to the same float.
TEST_P(AnglesTest, RowsThatAreNotInDoubtAreRoundedRight) {
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> angle(0, 6.283185307179586);
  for (int round = 0; round < 200; ++round) {
    for (const std::size_t n : {5, 16, 40, 64, 96, 128}) {
      const double factor = round % 3 == 0   ? 1
                            : round % 3 == 1 ? 1.2079441541679836
                                             : 0x1p-130;
      const bool negate = round % 2 == 1, stream = n % 16 == 0 && round % 4 < 2;
      const std::size_t rows = round % 5 == 0 ? 1 + round % 32 : kRows;
      Sums sums(n);
      for (std::size_t i = 0; i < n; ++i) {
        const double phi = angle(random);
        sums.cos[i] = factor * std::cos(phi);
        sums.sin[i] = factor * std::sin(phi);
        for (std::size_t row = 0; row < kRows; ++row) {
          const double delta = angle(random);
          sums.delta_cos(row, i) = std::cos(delta);
          sums.delta_sin(row, i) = std::sin(delta);
        }
      }
      const double error = kError * factor;
      const std::uint32_t doubt =
          sums.Add(*kernels_, rows, error, negate, stream);
      for (std::size_t row = 0; row < rows; ++row) {
        if (doubt & (1u << row)) continue;
        for (std::size_t i = 0; i < n; ++i) {
          const long double dc = sums.delta_cos(row, i);
          const long double ds = sums.delta_sin(row, i);
          const long double c = sums.cos[i] * dc - sums.sin[i] * ds;
          const long double s = sums.sin[i] * dc + sums.cos[i] * ds;
          const float sign = negate ? -1 : 1;
          for (const long double off : {-error, error}) {
            EXPECT_EQ(sums.Cosines()[row * n + i], static_cast<float>(c + off));
            EXPECT_EQ(sums.Sines()[row * n + i],
                      sign * static_cast<float>(s + off));
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(InstructionSets, AnglesTest,
                         testing::ValuesIn(reference::kInstructionSets),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace posenc::simd
