// Single elements of tensors as numbers, apart from the core's conversions, so
// that `posenc check` is independent of them.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "posenc/client.h"

namespace posenc::check {

// "bfloat16".
std::string DtypeName(v1::Dtype dtype);

// product(shape); -1 where an extent is negative or the product exceeds int64.
std::int64_t ElementCount(const std::vector<std::int64_t>& shape);

// Element `index` as a number, exactly (int64 beyond 2^53: rounded).
double ElementAt(const TensorView& tensor, std::int64_t index);

// Writes `value`, rounded to nearest even, as element `index`. Floating point
// dtypes only.
void SetElement(v1::Dtype dtype, char* data, std::int64_t index, float value);

// Distance of neighbouring numbers of a floating point dtype at |value|.
double UlpAt(v1::Dtype dtype, double value);

// Bits of the significand, the leading one included.
int SignificandBits(v1::Dtype dtype);

// Exponent of the smallest normal number.
int MinExponent(v1::Dtype dtype);

// "[1, 4096, 32, 128]".
std::string ShapeText(const std::vector<std::int64_t>& shape);

}  // namespace posenc::check
