// What the tests of relative encodings share: tensors that own their elements,
// bounds in __float128, and errors.

#pragma once

#include <gtest/gtest.h>
#include <quadmath.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/error.h"
#include "core/tensor.h"

namespace posenc::core {

using Quad = __float128;

inline constexpr Dtype kFloatingDtypes[] = {Dtype::kFloat32, Dtype::kFloat16,
                                            Dtype::kBfloat16, Dtype::kFloat64};

class OwnedTensor {
 public:
  OwnedTensor(Dtype dtype, Shape shape)
      : dtype_(dtype), shape_(std::move(shape)) {
    for (const std::int64_t extent : shape_) count_ *= extent;
    // One byte off, as tensors of a message may be.
    bytes_.resize(count_ * DtypeSize(dtype) + 1);
  }
  OwnedTensor(Dtype dtype, Shape shape, const std::vector<double>& values)
      : OwnedTensor(dtype, std::move(shape)) {
    EXPECT_EQ(count_, static_cast<std::int64_t>(values.size()));
    for (std::int64_t i = 0; i < count_; ++i) Set(i, values[i]);
  }
  // Random elements in (-2, 2).
  static OwnedTensor Random(Dtype dtype, Shape shape, int seed) {
    OwnedTensor tensor(dtype, std::move(shape));
    std::mt19937 generator(seed);
    std::uniform_real_distribution<double> distribution(-2, 2);
    for (std::int64_t i = 0; i < tensor.count(); ++i) {
      tensor.Set(i, distribution(generator));
    }
    return tensor;
  }

  std::int64_t count() const { return count_; }
  const Shape& shape() const { return shape_; }
  void* data() { return bytes_.data() + 1; }
  const std::vector<char>& bytes() const { return bytes_; }
  ConstTensorView view() const { return {dtype_, shape_, bytes_.data() + 1}; }
  double operator[](std::int64_t i) const {
    return ElementAsDouble({dtype_, {}, bytes_.data() + 1}, i);
  }
  void Set(std::int64_t i, double value) {
    StoreDouble(value, {dtype_, shape_, data()}, i);
  }

 private:
  Dtype dtype_;
  Shape shape_;
  std::int64_t count_ = 1;
  std::vector<char> bytes_;
};

// Half a unit in the last place of `dtype` at `value`: what one rounding may
// be off.
inline Quad HalfUlp(Dtype dtype, Quad value) {
  struct Format {
    int bits, min_exponent;
  };
  const Format format = dtype == Dtype::kFloat64   ? Format{53, -1022}
                        : dtype == Dtype::kFloat32 ? Format{24, -126}
                        : dtype == Dtype::kFloat16 ? Format{11, -14}
                                                   : Format{8, -126};
  const int exponent = value == 0
                           ? format.min_exponent
                           : std::max(ilogbq(value), format.min_exponent);
  return ldexpq(1, exponent - format.bits);
}

// `actual` is `exact` rounded once to `dtype`, but for an error of `slack`
// before that rounding. where(): a text for failures.
template <typename Where>
void ExpectRounded(double actual, Quad exact, Quad slack, Dtype dtype,
                   const Where& where) {
  if (isinfq(exact) || std::isinf(actual)) {
    EXPECT_EQ(actual, static_cast<double>(exact)) << where();
    return;
  }
  EXPECT_LE(static_cast<double>(fabsq(Quad(actual) - exact)),
            static_cast<double>(HalfUlp(dtype, fabsq(exact) + slack) + slack))
      << where() << ": " << actual << " for " << static_cast<double>(exact);
}

// The whole message is compared: it is what callers read.
inline void ExpectError(const absl::Status& status, absl::StatusCode code,
                        ErrorReason reason, const std::string& field,
                        const std::string& fact) {
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_EQ(status.message(), field.empty() ? fact : field + ": " + fact);
  const std::optional<ErrorDetails> details = GetErrorDetails(status);
  ASSERT_TRUE(details.has_value()) << status;
  EXPECT_EQ(details->field, field);
  EXPECT_EQ(static_cast<int>(details->reason), static_cast<int>(reason))
      << status;
}

inline void ExpectInvalid(const absl::Status& status, const std::string& field,
                          const std::string& fact) {
  ExpectError(status, absl::StatusCode::kInvalidArgument,
              ErrorReason::kFieldInvalid, field, fact);
}
inline void ExpectRequired(const absl::Status& status, const std::string& field,
                           const std::string& fact) {
  ExpectError(status, absl::StatusCode::kInvalidArgument,
              ErrorReason::kFieldRequired, field, fact);
}
inline void ExpectMismatch(const absl::Status& status, const std::string& field,
                           const std::string& fact) {
  ExpectError(status, absl::StatusCode::kInvalidArgument,
              ErrorReason::kShapeMismatch, field, fact);
}

}  // namespace posenc::core
