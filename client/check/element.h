// Single elements of tensors as numbers, and the facts about dtypes that bounds
// on errors need. Written apart from core's conversions, which are judged with
// these. The elements are little-endian, as in the contract.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "posenc/client.h"

namespace posenc::check {

// The name of a dtype in messages and flags: "bfloat16".
std::string DtypeName(v1::Dtype dtype);

// The product of the extents; -1 if one is negative or the product exceeds
// int64. No extents have the product 1.
std::int64_t ElementCount(const std::vector<std::int64_t>& shape);

// Element `index`, exactly; only int64 beyond 2^53 is rounded. The caller knows
// that the tensor has as many bytes. NaN for unknown dtypes.
double ElementAt(const TensorView& tensor, std::int64_t index);

// Writes `value`, rounded to nearest even, as element `index`; in FP8 what is
// past the largest number becomes that. Does nothing for dtypes that are not
// floating point.
void SetElement(v1::Dtype dtype, char* data, std::int64_t index, float value);

// The distance of neighbouring numbers of a floating point dtype at |value|,
// which is finite. At 0 and below the normal numbers that is the least positive
// number.
double UlpAt(v1::Dtype dtype, double value);

// True for the FP8 dtypes, whose rotations need to be told how they saturate.
bool IsFloat8(v1::Dtype dtype);

// The largest finite number of a floating point dtype.
double LargestFinite(v1::Dtype dtype);

// Bits of the significand, the leading one included: 24 for float32.
int SignificandBits(v1::Dtype dtype);

// Exponent of the smallest normal number: -126 for float32.
int MinExponent(v1::Dtype dtype);

// A shape as messages have it: "[1, 4096, 32, 128]".
std::string ShapeText(const std::vector<std::int64_t>& shape);

}  // namespace posenc::check
