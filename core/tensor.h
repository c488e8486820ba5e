// Views of dense tensors that somebody else owns: row-major, little-endian,
// no padding, any alignment.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace posenc::core {

// Numbered as posenc.v1.Dtype.
enum class Dtype {
  kFloat32 = 1,
  kFloat16 = 2,
  kBfloat16 = 3,
  kFloat64 = 4,
  kInt32 = 5,
  kInt64 = 6,
};

// Bytes of one element.
std::size_t DtypeSize(Dtype dtype);

// "float32", "bfloat16", ...
absl::string_view DtypeName(Dtype dtype);

// True for the dtypes that can be rotated and encoded.
bool IsFloating(Dtype dtype);

using Shape = std::vector<std::int64_t>;

// "[2, 8, 4, 64]".
std::string ShapeToString(const Shape& shape);

// Number of elements; FieldInvalid("shape", ...) if an extent is negative or
// the product of those that are not 0 exceeds 2^62: a zero elsewhere does not
// excuse an overflow of the others.
absl::StatusOr<std::int64_t> ElementCount(const Shape& shape);

struct ConstTensorView {
  Dtype dtype = Dtype::kFloat32;
  Shape shape;
  const void* data = nullptr;
};

struct TensorView {
  Dtype dtype = Dtype::kFloat32;
  Shape shape;
  void* data = nullptr;
};

// Element i of a tensor of any dtype, widened. Slow: for positions and small
// inputs only.
double ElementAsDouble(const ConstTensorView& tensor, std::int64_t i);

// Rounds `value` once to `dtype`, nearest even, and stores it as element i.
void StoreDouble(double value, const TensorView& tensor, std::int64_t i);

}  // namespace posenc::core
