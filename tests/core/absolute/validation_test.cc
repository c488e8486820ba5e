// Absolute encodings that are refused: code, field, reason and message.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "core/absolute/encoding.h"
#include "core/error.h"

namespace posenc::core {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

void ExpectRefused(const AbsoluteEncoding& encoding, const std::string& message,
                   ErrorReason reason = ErrorReason::kFieldInvalid) {
  const absl::Status status = ValidateAbsolute(encoding).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), message);
  const std::optional<ErrorDetails> details = GetErrorDetails(status);
  ASSERT_TRUE(details.has_value()) << message;
  EXPECT_EQ(details->reason, reason) << message;
  EXPECT_EQ(details->field, message.substr(0, message.find(':'))) << message;
}

TEST(AbsoluteValidationTest, AnEncodingIsRequired) {
  const absl::Status status = ValidateAbsolute({}).status();
  EXPECT_EQ(status.message(), "empty; give one encoding");
  EXPECT_EQ(GetErrorDetails(status)->reason, ErrorReason::kFieldRequired);
  EXPECT_EQ(GetErrorDetails(status)->field, "");
}

Sinusoidal GoodSinusoidal() {
  Sinusoidal encoding;
  encoding.dim = 8;
  encoding.order = SinusoidalOrder::kSinCos;
  return encoding;
}

TEST(AbsoluteValidationTest, SinusoidalFieldsAreNamed) {
  Sinusoidal encoding = GoodSinusoidal();
  encoding.dim = 1;
  ExpectRefused(encoding, "sinusoidal.dim: is 1; must be 2 to 1048576");
  encoding.dim = 1 << 21;
  ExpectRefused(encoding, "sinusoidal.dim: is 2097152; must be 2 to 1048576");
  encoding = GoodSinusoidal();
  encoding.base = 1;
  ExpectRefused(
      encoding,
      "sinusoidal.base: is 1; must be greater than 1, and at most 2^900");
  encoding.base = 1e300;
  ExpectRefused(
      encoding,
      "sinusoidal.base: is 1e+300; must be greater than 1, and at most 2^900");
  encoding = GoodSinusoidal();
  encoding.dim = 3;
  encoding.endpoint = true;
  ExpectRefused(encoding,
                "sinusoidal.endpoint: dim is 3; frequencies that end at 1/base "
                "need at least 4 channels");
  encoding = GoodSinusoidal();
  encoding.order = SinusoidalOrder::kUnspecified;
  ExpectRefused(encoding,
                "sinusoidal.order: not set; say where sines and cosines go",
                ErrorReason::kFieldRequired);
}

Timestep GoodTimestep() {
  Timestep encoding;
  encoding.dim = 8;
  return encoding;
}

TEST(AbsoluteValidationTest, TimestepsThatDivideByZeroAreRefused) {
  Timestep encoding = GoodTimestep();
  ASSERT_TRUE(ValidateAbsolute(encoding).ok());
  encoding.downscale_freq_shift = 4;
  ExpectRefused(encoding,
                "timestep.downscale_freq_shift: is 4, and dim 8 has 4 "
                "frequencies; their exponents i / (4 - 4) divide by zero, use "
                "another shift or more channels");
  encoding.downscale_freq_shift = 1;
  for (const int dim : {2, 3}) {
    encoding.dim = dim;
    EXPECT_EQ(GetErrorDetails(ValidateAbsolute(encoding).status())->field,
              "timestep.downscale_freq_shift");
  }
  encoding.dim = 4;
  EXPECT_TRUE(ValidateAbsolute(encoding).ok());
}

TEST(AbsoluteValidationTest, TimestepFieldsAreNamed) {
  Timestep encoding = GoodTimestep();
  encoding.dim = 0;
  ExpectRefused(encoding, "timestep.dim: is 0; must be 2 to 1048576");
  for (const double bad : {0., -5., 1., kNan, kInfinity}) {
    encoding = GoodTimestep();
    encoding.max_period = bad;
    ExpectRefused(encoding, "timestep.max_period: is " + NumberText(bad) +
                                "; must be finite and greater than 1");
  }
  for (const double bad : {0., kNan, kInfinity}) {
    encoding = GoodTimestep();
    encoding.scale = bad;
    ExpectRefused(encoding, "timestep.scale: is " + NumberText(bad) +
                                "; must be finite and not 0, which would make "
                                "all timesteps one");
  }
  encoding = GoodTimestep();
  encoding.downscale_freq_shift = kNan;
  ExpectRefused(encoding,
                "timestep.downscale_freq_shift: is nan; must be finite");
}

TEST(AbsoluteValidationTest, TimestepFrequenciesOutOfReachAreRefused) {
  Timestep encoding = GoodTimestep();
  encoding.scale = -1e9;
  ExpectRefused(encoding,
                "timestep.scale: gives channel 0 the frequency -1e+09; served "
                "are 2^-900 to 2^20");
  encoding = GoodTimestep();
  encoding.downscale_freq_shift = 4.5;  // 10000^(2i)
  ExpectRefused(encoding,
                "timestep.downscale_freq_shift: gives channel 3 the frequency "
                "1e+24; served are 2^-900 to 2^20");
  encoding = GoodTimestep();
  encoding.dim = 1000;
  encoding.max_period = 1e300;
  EXPECT_EQ(GetErrorDetails(ValidateAbsolute(encoding).status())->field,
            "timestep.max_period");
}

TEST(AbsoluteValidationTest, LearnedTablesOfTheWrongKindAreRefused) {
  LearnedTable encoding;
  ExpectRefused(encoding,
                "learned.table: not given; must be a tensor [rows, dim]",
                ErrorReason::kFieldRequired);
  const std::vector<float> data(8);
  encoding.table = ConstTensorView{Dtype::kInt32, {2, 4}, data.data()};
  ExpectRefused(encoding,
                "learned.table.dtype: is int32; must be float32, float16, "
                "bfloat16 or float64");
  for (const Shape& shape :
       std::vector<Shape>{{8}, {1, 2, 4}, {0, 4}, {2, 0}}) {
    encoding.table = ConstTensorView{Dtype::kFloat32, shape, data.data()};
    ExpectRefused(encoding,
                  "learned.table.shape: is " + ShapeToString(shape) +
                      "; must be [rows, dim], both at least 1",
                  ErrorReason::kShapeMismatch);
  }
}

TEST(AbsoluteValidationTest, HierarchicalAlphaIsInsideTheUnitIntervalNotHalf) {
  const std::vector<float> data(8);
  LearnedTable encoding;
  encoding.table = ConstTensorView{Dtype::kFloat32, {2, 4}, data.data()};
  for (const double bad : {0., 1., -0.4, 1.5, kNan}) {
    encoding.hierarchical_alpha = bad;
    ExpectRefused(encoding, "learned.hierarchical_alpha: is " +
                                NumberText(bad) +
                                "; must be in (0, 1), 0.4 is the article's");
  }
  encoding.hierarchical_alpha = 0.5;
  ExpectRefused(encoding,
                "learned.hierarchical_alpha: is 0.5; positions i * rows + j "
                "and j * rows + i would be one, 0.4 is the article's");
  encoding.hierarchical_alpha = 0.4;
  EXPECT_TRUE(ValidateAbsolute(encoding).ok());
}

SincosGrid GoodGrid() { return {.dim = 16, .extents = {3, 4}}; }

TEST(AbsoluteValidationTest, GridDimMustHoldAPairPerAxis) {
  SincosGrid encoding = GoodGrid();
  const absl::StatusOr<AbsoluteExtents> extents = ValidateAbsolute(encoding);
  ASSERT_TRUE(extents.ok());
  EXPECT_EQ(extents->rows, 12);
  for (const int bad : {0, -4, 2, 14}) {
    encoding.dim = bad;
    ExpectRefused(encoding, "sincos_grid.dim: is " + std::to_string(bad) +
                                "; must be a multiple of 4, a sine and a "
                                "cosine for each of 2 axes, and at most "
                                "1048576");
  }
}

TEST(AbsoluteValidationTest, GridExtentsAreCounted) {
  SincosGrid encoding = GoodGrid();
  encoding.extents = {};
  ExpectRefused(encoding,
                "sincos_grid.extents: is empty; must have the cells of each "
                "axis",
                ErrorReason::kFieldRequired);
  encoding.extents = {3, 0};
  ExpectRefused(encoding, "sincos_grid.extents[1]: is 0; must be >= 1");
  const std::int32_t most = std::numeric_limits<std::int32_t>::max();
  encoding = {.dim = 18, .extents = {most, most, most}};
  ExpectRefused(encoding,
                "sincos_grid.extents: [2147483647, 2147483647, 2147483647] "
                "cells of 18 channels are more than 2^62 elements; ask for "
                "less");
  // 2^62 / 16 cells fit, and not one more row.
  encoding = {.dim = 16, .extents = {1 << 30, 1 << 28}};
  EXPECT_EQ(ValidateAbsolute(encoding)->rows, std::int64_t{1} << 58);
  encoding.leading_zero_rows = 1;
  EXPECT_FALSE(ValidateAbsolute(encoding).ok());
}

TEST(AbsoluteValidationTest, GridFieldsAreNamed) {
  SincosGrid encoding = GoodGrid();
  encoding.base = 0.5;
  ExpectRefused(
      encoding,
      "sincos_grid.base: is 0.5; must be greater than 1, and at most 2^900");
  encoding = GoodGrid();
  encoding.leading_zero_rows = -1;
  ExpectRefused(encoding, "sincos_grid.leading_zero_rows: is -1; must be >= 0");
  encoding = GoodGrid();
  encoding.steps = {1};
  ExpectRefused(encoding,
                "sincos_grid.steps: has 1 values for 2 extents; give one each, "
                "or none");
  for (const double bad : {0., -1., kNan, kInfinity}) {
    encoding.steps = {1, bad};
    ExpectRefused(encoding, "sincos_grid.steps[1]: is " + NumberText(bad) +
                                "; must be finite and > 0");
  }
  encoding.steps = {2e9, 1};
  ExpectRefused(encoding,
                "sincos_grid.steps[0]: is 2e+09, which puts the last of 3 "
                "cells at 4000000000; positions are within +-2^31");
}

TEST(AbsoluteValidationTest, FourierFrequenciesOfTheWrongKindAreRefused) {
  FourierFeatures encoding;
  ExpectRefused(encoding,
                "fourier_features.frequencies: not given; must be a tensor "
                "[axes, dim / 2]",
                ErrorReason::kFieldRequired);
  std::vector<double> data(8, 1);
  encoding.frequencies = {Dtype::kInt64, {2, 4}, data.data()};
  ExpectRefused(encoding,
                "fourier_features.frequencies.dtype: is int64; must be "
                "float32, float16, bfloat16 or float64");
  encoding.frequencies = {Dtype::kFloat64, {8}, data.data()};
  ExpectRefused(encoding,
                "fourier_features.frequencies.shape: is [8]; must be [axes, "
                "dim / 2], both at least 1",
                ErrorReason::kShapeMismatch);
  encoding.frequencies = {Dtype::kFloat64, {2, 4}, data.data()};
  const absl::StatusOr<AbsoluteExtents> extents = ValidateAbsolute(encoding);
  ASSERT_TRUE(extents.ok());
  EXPECT_EQ(extents->dim, 8);
  EXPECT_EQ(extents->axes, 2);
  for (const double bad : {kNan, kInfinity, -3e5}) {
    data[5] = bad;
    ExpectRefused(encoding, "fourier_features.frequencies: element 5 is " +
                                NumberText(bad) +
                                "; must be within +-2^18 turns per position");
  }
}

}  // namespace
}  // namespace posenc::core
