// Sinusoidal rows against sines and cosines in __float128: every order of their
// elements, padding, and bad encodings.

#include "core/absolute/sinusoidal.h"

#include <quadmath.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "core/error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/reference/rope_reference.h"

namespace posenc::core {
namespace {

using reference::Quad;

const std::vector<double> kPositions = {0,     1,   2,         1023, -7,
                                        0.375, 1e6, 67108863., 1};

std::vector<float> Build(const Sinusoidal& encoding) {
  std::vector<float> table(kPositions.size() * encoding.dim, -9);
  const auto rows = static_cast<std::int64_t>(kPositions.size());
  const absl::Status status =
      BuildSinusoidal(encoding, TokenPositions(kPositions, 1, 1, rows),
                      {Dtype::kFloat32, {rows, encoding.dim}, table.data()});
  EXPECT_TRUE(status.ok()) << status;
  return table;
}

// The frequency is rounded once to float64: that number is the frequency.
double Frequency(const Sinusoidal& encoding, int i) {
  const int n = encoding.dim / 2;
  const Quad exponent =
      encoding.endpoint ? Quad(i) / (n - 1) : Quad(2 * i) / encoding.dim;
  return static_cast<double>(powq(encoding.base.value_or(10000), -exponent));
}

void ExpectSin(const Sinusoidal& encoding, float actual, double p, int i) {
  EXPECT_EQ(actual,
            static_cast<float>(reference::Sin(p, Frequency(encoding, i))))
      << p << ", " << i;
}
void ExpectCos(const Sinusoidal& encoding, float actual, double p, int i) {
  EXPECT_EQ(actual,
            static_cast<float>(reference::Cos(p, Frequency(encoding, i))))
      << p << ", " << i;
}

void CheckOrder(const Sinusoidal& encoding) {
  const std::vector<float> table = Build(encoding);
  const int n = encoding.dim / 2;
  for (std::size_t t = 0; t < kPositions.size(); ++t) {
    const float* row = table.data() + t * encoding.dim;
    for (int i = 0; i < n; ++i) {
      int sin = i, cos = n + i;
      if (encoding.order == SinusoidalOrder::kInterleaved) {
        sin = 2 * i;
        cos = 2 * i + 1;
      } else if (encoding.order == SinusoidalOrder::kCosSin) {
        std::swap(sin, cos);
      }
      ExpectSin(encoding, row[sin], kPositions[t], i);
      ExpectCos(encoding, row[cos], kPositions[t], i);
    }
    if (encoding.dim % 2 == 0) continue;
    if (encoding.odd_dim_sine) {
      ExpectSin(encoding, row[encoding.dim - 1], kPositions[t], n);
    } else {
      EXPECT_EQ(row[encoding.dim - 1], 0);
    }
  }
}

TEST(SinusoidalTest, EveryOrderIsCorrectlyRounded) {
  for (const SinusoidalOrder order :
       {SinusoidalOrder::kInterleaved, SinusoidalOrder::kSinCos,
        SinusoidalOrder::kCosSin}) {
    for (const int dim : {2, 4, 7, 64, 129, 512}) {
      for (const bool endpoint : {false, true}) {
        if (endpoint && dim < 4) continue;
        Sinusoidal encoding;
        encoding.dim = dim;
        encoding.order = order;
        encoding.endpoint = endpoint;
        CheckOrder(encoding);
      }
    }
  }
}

TEST(SinusoidalTest, OtherBasesAreServed) {
  Sinusoidal encoding;
  encoding.dim = 32;
  encoding.base = 100.5;
  encoding.order = SinusoidalOrder::kSinCos;
  CheckOrder(encoding);
}

TEST(SinusoidalTest, OddWidthMayEndInASine) {
  Sinusoidal encoding;
  encoding.dim = 9;
  encoding.order = SinusoidalOrder::kInterleaved;
  encoding.odd_dim_sine = true;
  CheckOrder(encoding);
}

TEST(SinusoidalTest, PaddingRowsAreZero) {
  Sinusoidal encoding;
  encoding.dim = 5;
  encoding.order = SinusoidalOrder::kSinCos;
  encoding.padding_position = 1;
  const std::vector<float> table = Build(encoding);
  for (std::size_t t = 0; t < kPositions.size(); ++t) {
    float largest = 0;
    for (int c = 0; c < 5; ++c) {
      largest = std::max(largest, std::fabs(table[t * 5 + c]));
    }
    EXPECT_EQ(largest == 0, kPositions[t] == 1) << t;
  }
}

TEST(SinusoidalTest, Float64IsWithinTwoUlp) {
  Sinusoidal encoding;
  encoding.dim = 64;
  encoding.order = SinusoidalOrder::kSinCos;
  const auto rows = static_cast<std::int64_t>(kPositions.size());
  std::vector<double> table(rows * 64);
  ASSERT_TRUE(BuildSinusoidal(encoding, TokenPositions(kPositions, 1, 1, rows),
                              {Dtype::kFloat64, {rows, 64}, table.data()})
                  .ok());
  for (int t = 0; t < rows; ++t) {
    for (int i = 0; i < 32; ++i) {
      EXPECT_LE(reference::UlpError(
                    table[t * 64 + i],
                    reference::Sin(kPositions[t], Frequency(encoding, i))),
                2);
    }
  }
}

struct BadCase {
  std::function<void(Sinusoidal&)> spoil;
  std::string field;
  ErrorReason reason = ErrorReason::kFieldInvalid;
};

TEST(SinusoidalTest, BadEncodingsAreRefused) {
  const std::vector<BadCase> cases = {
      {[](Sinusoidal& s) { s.dim = 1; }, "dim"},
      {[](Sinusoidal& s) { s.dim = -4; }, "dim"},
      {[](Sinusoidal& s) { s.base = 1; }, "base"},
      {[](Sinusoidal& s) { s.base = std::numeric_limits<double>::quiet_NaN(); },
       "base"},
      {[](Sinusoidal& s) { s.base = std::numeric_limits<double>::infinity(); },
       "base"},
      {[](Sinusoidal& s) { s.order = SinusoidalOrder::kUnspecified; }, "order",
       ErrorReason::kFieldRequired},
      {[](Sinusoidal& s) {
         s.dim = 3;
         s.endpoint = true;
       },
       "endpoint"},
      {[](Sinusoidal& s) { s.odd_dim_sine = true; }, "odd_dim_sine"},
  };
  for (const BadCase& bad : cases) {
    Sinusoidal encoding;
    encoding.dim = 8;
    encoding.order = SinusoidalOrder::kSinCos;
    ASSERT_TRUE(ValidateSinusoidal(encoding).ok());
    bad.spoil(encoding);
    const absl::Status status = ValidateSinusoidal(encoding);
    ASSERT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << bad.field;
    EXPECT_EQ(GetErrorDetails(status)->field, bad.field);
    EXPECT_EQ(GetErrorDetails(status)->reason, bad.reason);
  }
}

}  // namespace
}  // namespace posenc::core
