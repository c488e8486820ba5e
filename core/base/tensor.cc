#include "core/base/tensor.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/simd/dispatch.h"

namespace posenc::core {
namespace {

// The name of a dtype, and the size of an element in bytes.
struct Row {
  absl::string_view name = "unknown";
  std::size_t size = 0;
};

Row RowOf(Dtype dtype) {
  // The rows are in the order of the enum.
  static constexpr Row kRows[] = {
      {"float32", 4},       {"float16", 2},     {"bfloat16", 2},
      {"float64", 8},       {"int32", 4},       {"int64", 8},
      {"float8_e4m3fn", 1}, {"float8_e5m2", 1}, {"int8", 1}};
  const int i = static_cast<int>(dtype) - 1;
  return i >= 0 && i < static_cast<int>(std::size(kRows)) ? kRows[i] : Row();
}

bool Matches(const Shape& shape, const std::vector<NamedExtent>& extents) {
  if (shape.size() != extents.size()) return false;
  for (std::size_t a = 0; a < shape.size(); ++a) {
    const std::int64_t size = extents[a].size;
    if (size == -1 ? shape[a] < 1 : shape[a] != size) return false;
  }
  return true;
}

std::string Text(const NamedExtent& extent) {
  if (extent.size == -1) return extent.name;
  if (extent.name.empty()) return absl::StrCat(extent.size);
  return absl::StrCat(extent.name, " = ", extent.size);
}

constexpr std::int64_t kBlock = 256;  // elements converted at a time

// Rounds to odd: truncates `value` to float32 and sets the lowest bit if the
// truncation changed the value. The lowest bit keeps the result away from ties
// between two narrower numbers. So rounding the result to a format with at
// least two bits fewer gives the same number as rounding `value` directly:
//
//   value         1.0000000 1 00..01   just above a tie of bfloat16
//   to nearest    1.0000000 1 00..0    the tie itself, which rounds down: wrong
//   to odd        1.0000000 1 00..1    still above the tie, which rounds up
float RoundToOdd(double value) {
  const auto nearest = static_cast<float>(value);
  if (std::isnan(value) || nearest == value) return nearest;
  auto bits = std::bit_cast<std::uint32_t>(nearest);
  if (std::fabs(static_cast<double>(nearest)) > std::fabs(value)) --bits;
  return std::bit_cast<float>(bits | 1);
}

template <typename T>
void LoadAs(const char* bytes, std::int64_t n, double* values) {
  for (std::int64_t i = 0; i < n; ++i) {
    T value;
    std::memcpy(&value, bytes + i * sizeof(T), sizeof(T));
    values[i] = static_cast<double>(value);
  }
}

template <typename T>
void StoreAs(const double* values, std::int64_t n, char* bytes) {
  for (std::int64_t i = 0; i < n; ++i) {
    const auto value = static_cast<T>(values[i]);
    std::memcpy(bytes + i * sizeof(T), &value, sizeof(T));
  }
}

}  // namespace

std::size_t DtypeSize(Dtype dtype) { return RowOf(dtype).size; }

absl::string_view DtypeName(Dtype dtype) { return RowOf(dtype).name; }

bool IsFloating(Dtype dtype) {
  return dtype == Dtype::kFloat32 || dtype == Dtype::kFloat16 ||
         dtype == Dtype::kBfloat16 || dtype == Dtype::kFloat64;
}

absl::Status CheckFloating(absl::string_view field, Dtype dtype) {
  if (IsFloating(dtype)) return absl::OkStatus();
  return MustBe(field, DtypeName(dtype),
                "float32, float16, bfloat16 or float64");
}

bool IsFloat8(Dtype dtype) {
  return dtype == Dtype::kFloat8E4m3fn || dtype == Dtype::kFloat8E5m2;
}

std::string ShapeToString(const Shape& shape) {
  constexpr std::size_t kMost = 16;
  if (shape.size() <= kMost) {
    return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
  }
  return absl::StrCat("[",
                      absl::StrJoin(shape.begin(), shape.begin() + kMost, ", "),
                      ", and ", shape.size() - kMost, " more]");
}

absl::StatusOr<std::int64_t> ElementCount(const Shape& shape) {
  constexpr std::int64_t kLimit = std::int64_t{1} << 62;
  const bool empty = std::find(shape.begin(), shape.end(), 0) != shape.end();
  std::int64_t product = 1;
  for (const std::int64_t extent : shape) {
    if (extent < 0) {
      return FieldInvalid("shape",
                          absl::StrCat(ShapeToString(shape), " has the extent ",
                                       extent, "; extents are >= 0"));
    }
    if (extent == 0) continue;
    if (product > kLimit / extent) {
      return FieldInvalid(
          "shape",
          absl::StrCat(ShapeToString(shape), " has more than 2^62 elements",
                       empty ? " without its extent of 0" : "", "; send less"));
    }
    product *= extent;
  }
  return empty ? 0 : product;
}

absl::Status CheckTensor(absl::string_view field,
                         const std::optional<ConstTensorView>& tensor,
                         const std::vector<NamedExtent>& extents) {
  const std::string expected = absl::StrCat(
      "[",
      absl::StrJoin(extents, ", ",
                    [](std::string* out, const NamedExtent& extent) {
                      out->append(Text(extent));
                    }),
      "]");
  if (!tensor.has_value()) {
    return FieldRequired(field, absl::StrCat("not set; must be ", expected));
  }
  RETURN_IF_ERROR(CheckFloating(absl::StrCat(field, ".dtype"), tensor->dtype));
  if (Matches(tensor->shape, extents)) return absl::OkStatus();
  const bool empty =
      std::count(tensor->shape.begin(), tensor->shape.end(), 0) > 0;
  const std::string given = ShapeToString(tensor->shape);
  return ShapeMismatch(absl::StrCat(field, ".shape"),
                       absl::StrCat("is ", given, "; must be ", expected,
                                    empty ? ", each at least 1" : ""),
                       expected, given);
}

int KernelIndex(Dtype dtype, Saturation saturation) {
  const bool finite = saturation == Saturation::kFinite;
  switch (dtype) {
    case Dtype::kFloat16:
      return simd::kF16;
    case Dtype::kBfloat16:
      return simd::kBf16;
    case Dtype::kFloat64:
      return simd::kF64;
    case Dtype::kFloat8E4m3fn:
      return finite ? simd::kE4m3Finite : simd::kE4m3;
    case Dtype::kFloat8E5m2:
      return finite ? simd::kE5m2Finite : simd::kE5m2;
    default:
      return simd::kF32;
  }
}

void LoadDoubles(const ConstTensorView& tensor, std::int64_t first,
                 std::int64_t n, double* values) {
  const auto size = static_cast<std::int64_t>(DtypeSize(tensor.dtype));
  const char* const bytes =
      static_cast<const char*>(tensor.data) + first * size;
  switch (tensor.dtype) {
    case Dtype::kFloat64:
      std::copy_n(bytes, n * size, reinterpret_cast<char*>(values));
      return;
    case Dtype::kFloat32:
      return LoadAs<float>(bytes, n, values);
    case Dtype::kInt32:
      return LoadAs<std::int32_t>(bytes, n, values);
    case Dtype::kInt64:
      return LoadAs<std::int64_t>(bytes, n, values);
    case Dtype::kInt8:
      return LoadAs<std::int8_t>(bytes, n, values);
    default:
      break;
  }
  const auto widen = simd::ActiveKernels().widen[KernelIndex(tensor.dtype)];
  float block[kBlock];
  for (std::int64_t at = 0; at < n; at += kBlock) {
    const std::int64_t count = std::min(kBlock, n - at);
    widen(bytes + at * size, block, static_cast<std::size_t>(count));
    std::copy_n(block, count, values + at);
  }
}

void StoreDoubles(const double* values, std::int64_t n, Dtype dtype,
                  void* out) {
  const auto size = static_cast<std::int64_t>(DtypeSize(dtype));
  char* const bytes = static_cast<char*>(out);
  switch (dtype) {
    case Dtype::kFloat64:
      std::copy_n(reinterpret_cast<const char*>(values), n * size, bytes);
      return;
    case Dtype::kFloat32:
      return StoreAs<float>(values, n, bytes);
    case Dtype::kInt32:
      return StoreAs<std::int32_t>(values, n, bytes);
    case Dtype::kInt64:
      return StoreAs<std::int64_t>(values, n, bytes);
    case Dtype::kInt8:
      return StoreAs<std::int8_t>(values, n, bytes);
    default:
      break;
  }
  const auto narrow = simd::ActiveKernels().narrow[KernelIndex(dtype)];
  float block[kBlock];
  for (std::int64_t at = 0; at < n; at += kBlock) {
    const std::int64_t count = std::min(kBlock, n - at);
    std::transform(values + at, values + at + count, block, RoundToOdd);
    narrow(block, bytes + at * size, static_cast<std::size_t>(count));
  }
}

double ElementAsDouble(const ConstTensorView& tensor, std::int64_t i) {
  double value;
  LoadDoubles(tensor, i, 1, &value);
  return value;
}

void StoreDouble(double value, const TensorView& tensor, std::int64_t i) {
  const auto size = static_cast<std::int64_t>(DtypeSize(tensor.dtype));
  StoreDoubles(&value, 1, tensor.dtype,
               static_cast<char*>(tensor.data) + i * size);
}

}  // namespace posenc::core
