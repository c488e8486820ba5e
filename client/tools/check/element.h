// Reads and writes single elements of tensors, and describes dtypes for bounds
// on errors. This code shares nothing with the conversions of core, because it
// checks these conversions. The elements are little-endian, as in the contract.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "posenc/client.h"

namespace posenc::check {

// Returns the name of a dtype in messages and flags: "bfloat16".
std::string DtypeName(v1::Dtype dtype);

// Returns the product of the extents; -1 if one is negative or the product
// exceeds int64. Without extents the product is 1.
std::int64_t ElementCount(const std::vector<std::int64_t>& shape);

// Returns element `index` exactly, except that int64 numbers beyond 2^53 are
// rounded. The tensor must contain the bytes of the element. Returns NaN for
// unknown dtypes.
double ElementAt(const TensorView& tensor, std::int64_t index);

// Writes `value`, rounded to nearest even, as element `index`; FP8 saturates at
// its largest number. Does nothing for dtypes that are not floating point.
void SetElement(v1::Dtype dtype, char* data, std::int64_t index, float value);

// Returns the distance between neighbouring numbers of a floating point dtype
// at |value|, which must be finite. For 0 and subnormal numbers the distance is
// the least positive number.
double UlpAt(v1::Dtype dtype, double value);

// Returns true for the FP8 dtypes, whose rotations require a saturation.
bool IsFloat8(v1::Dtype dtype);

// Returns the largest finite number of a floating point dtype.
double LargestFinite(v1::Dtype dtype);

// Returns the number of significand bits, including the leading one: 24 for
// float32.
int SignificandBits(v1::Dtype dtype);

// Returns a shape's text in messages: "[1, 4096, 32, 128]".
std::string ShapeText(const std::vector<std::int64_t>& shape);

}  // namespace posenc::check
