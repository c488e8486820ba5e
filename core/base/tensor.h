// Views of dense tensors: row-major, little-endian, without padding, with any
// alignment. A view does not own its data.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace posenc::core {

// Each value has the same number as in posenc.v1.Dtype.
enum class Dtype {
  kFloat32 = 1,
  kFloat16 = 2,
  kBfloat16 = 3,
  kFloat64 = 4,
  kInt32 = 5,
  kInt64 = 6,
  kFloat8E4m3fn = 7,
  kFloat8E5m2 = 8,
  kInt8 = 9,  // keys of Reposition only
};

// The value that is stored in FP8 for infinity, and for results beyond the
// dtype's largest finite number. Each value has the same number as in
// posenc.v1.Saturation.
enum class Saturation {
  kUnspecified = 0,
  kFinite = 1,  // the largest finite number
  kNone = 2,    // infinity; NaN in E4M3, which lacks infinity
};

// Size of one element in bytes.
std::size_t DtypeSize(Dtype dtype);

// Returns the name of a dtype, for example "float32".
absl::string_view DtypeName(Dtype dtype);

// True for float32, float16, bfloat16 and float64: the dtypes of encoded
// tensors and of encodings.
bool IsFloating(Dtype dtype);

// Returns FieldInvalid unless IsFloating().
absl::Status CheckFloating(absl::string_view field, Dtype dtype);

// True for the FP8 dtypes. Only tensors to rotate, weights, and tables of
// frequencies from a checkpoint may have these dtypes.
bool IsFloat8(Dtype dtype);

using Shape = std::vector<std::int64_t>;

// Returns text such as "[2, 8, 4, 64]". If there are more than 16 extents, the
// text has the first 16, and the number of extents that it leaves out.
std::string ShapeToString(const Shape& shape);

// Returns the number of elements. Returns FieldInvalid("shape", ...) if an
// extent is negative or the product of the nonzero extents exceeds 2^62, even
// if another extent is 0.
absl::StatusOr<std::int64_t> ElementCount(const Shape& shape);

struct ConstTensorView {
  Dtype dtype = Dtype::kFloat32;
  Shape shape;
  const void* data = nullptr;
};

// An extent, and its name in the proto's comment; the name may be empty. Size
// -1 means any size of at least 1.
struct NamedExtent {
  std::string name;
  std::int64_t size = -1;
};

// Checks that a tensor is present and has a floating dtype and these extents.
// Returns FieldRequired if the tensor is absent, FieldInvalid for
// "<field>.dtype", or kShapeMismatch for "<field>.shape".
absl::Status CheckTensor(absl::string_view field,
                         const std::optional<ConstTensorView>& tensor,
                         const std::vector<NamedExtent>& extents);

struct TensorView {
  Dtype dtype = Dtype::kFloat32;
  Shape shape;
  void* data = nullptr;
};

// The index of the kernels for a floating dtype (simd::DtypeIndex). The
// saturation matters only for FP8.
int KernelIndex(Dtype dtype, Saturation saturation = Saturation::kNone);

// Sets values[i] to element first + i of a tensor of any dtype, without
// rounding.
void LoadDoubles(const ConstTensorView& tensor, std::int64_t first,
                 std::int64_t n, double* values);

// Rounds each value once to `dtype`, to nearest even, and stores the results
// side by side. FP8 follows Saturation::kNone, and NaN becomes 0x7f. If `dtype`
// is an integer type, values must be integers in its range.
void StoreDoubles(const double* values, std::int64_t n, Dtype dtype, void* out);

// Do the same as LoadDoubles and StoreDoubles for element i of a tensor.
double ElementAsDouble(const ConstTensorView& tensor, std::int64_t i);
void StoreDouble(double value, const TensorView& tensor, std::int64_t i);

}  // namespace posenc::core
