#include "core/absolute/add_encoding.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/absolute/rows.h"
#include "core/error.h"
#include "core/simd/dispatch.h"

namespace posenc::core {
namespace {

// The table exists in blocks: they stay in a second-level cache while every
// sequence of the batch takes them.
constexpr std::int64_t kBlockBytes = 256 << 10;
constexpr std::int64_t kMostBlockRows = 256;

absl::Status WrongShape(const std::string& expected, const Shape& actual) {
  return MakeError(
      absl::StatusCode::kInvalidArgument, ErrorReason::kShapeMismatch,
      "x.shape",
      absl::StrCat("is ", ShapeToString(actual), "; must be ", expected),
      {{"expected", expected}, {"actual", ShapeToString(actual)}});
}

absl::Status CheckScale(const std::optional<double>& scale, Dtype dtype) {
  if (!scale.has_value()) return absl::OkStatus();
  if (!std::isfinite(*scale)) {
    return FieldInvalid(
        "x_scale", absl::StrCat("is ", NumberText(*scale), "; must be finite"));
  }
  if (dtype != Dtype::kFloat64 && std::isinf(static_cast<float>(*scale))) {
    return FieldInvalid(
        "x_scale",
        absl::StrCat("is ", NumberText(*scale), "; must fit float32, in which ",
                     DtypeName(dtype), " is computed"));
  }
  return absl::OkStatus();
}

absl::Status CheckShape(const AddEncodingArgs& args,
                        const AbsoluteExtents& extents, const Shape& x) {
  const bool packed = std::holds_alternative<PackedSequences>(args.positions);
  const std::string tokens =
      extents.rows.has_value() ? absl::StrCat(*extents.rows) : "S";
  const std::string expected =
      packed ? absl::StrCat("[T, ", extents.dim, "]")
             : absl::StrCat("[", tokens, ", ", extents.dim, "] or [B, ", tokens,
                            ", ", extents.dim, "]");
  const std::size_t rank = x.size();
  if ((rank != 2 && (rank != 3 || packed)) || x[rank - 1] != extents.dim ||
      (extents.rows.has_value() && x[rank - 2] != *extents.rows)) {
    return WrongShape(expected, x);
  }
  return absl::OkStatus();
}

// Rows of x's dtype as T and back.
template <typename T>
class RowFormat {
 public:
  explicit RowFormat(Dtype dtype) : dtype_(dtype), size_(DtypeSize(dtype)) {}

  void Load(const ConstTensorView& x, std::int64_t first, std::int64_t n,
            T* row) const {
    const char* const src = static_cast<const char*>(x.data) + first * size_;
    if constexpr (sizeof(T) == sizeof(float)) {
      if (size_ == 2) {
        const simd::KernelTable& kernels = simd::ActiveKernels();
        (dtype_ == Dtype::kFloat16 ? kernels.widen_f16 : kernels.widen_bf16)(
            reinterpret_cast<const std::uint16_t*>(src), row, n);
        return;
      }
    }
    std::memcpy(row, src, n * sizeof(T));
  }

  void Store(const T* row, std::int64_t n, std::int64_t first,
             const TensorView& out) const {
    char* const dst = static_cast<char*>(out.data) + first * size_;
    if constexpr (sizeof(T) == sizeof(float)) {
      if (size_ == 2) {
        const simd::KernelTable& kernels = simd::ActiveKernels();
        (dtype_ == Dtype::kFloat16 ? kernels.narrow_f16 : kernels.narrow_bf16)(
            row, reinterpret_cast<std::uint16_t*>(dst), n);
        return;
      }
    }
    std::memcpy(dst, row, n * sizeof(T));
  }

 private:
  Dtype dtype_;
  std::size_t size_;
};

// x: a row of n elements, replaced by the result of args; concatenation only
// scales it.
template <typename T>
void Combine(Combination combination, T scale, const T* e, std::int64_t n,
             T* x) {
  switch (combination) {
    case Combination::kAdd:
      for (std::int64_t i = 0; i < n; ++i) x[i] = x[i] * scale + e[i];
      return;
    case Combination::kMultiply:
      for (std::int64_t i = 0; i < n; ++i) x[i] = x[i] * scale * (1 + e[i]);
      return;
    case Combination::kConcatenate:
      for (std::int64_t i = 0; i < n; ++i) x[i] *= scale;
      return;
  }
}

// positions: null for a grid.
template <typename T>
void Run(const AddEncodingArgs& args, const TokenPositions* positions,
         const ConstTensorView& x, const TensorView& out) {
  const std::size_t rank = x.shape.size();
  const std::int64_t dim = x.shape[rank - 1];
  const std::int64_t tokens = x.shape[rank - 2];
  const std::int64_t batch = rank == 3 ? x.shape[0] : 1;
  const bool shared = positions == nullptr || positions->shared();
  const bool concatenate = args.combination == Combination::kConcatenate;
  const std::int64_t out_dim = concatenate ? 2 * dim : dim;
  const auto scale = static_cast<T>(args.x_scale.value_or(1));
  const std::int64_t block = std::clamp<std::int64_t>(
      kBlockBytes / (dim * static_cast<std::int64_t>(sizeof(T))), 1,
      std::min(kMostBlockRows, tokens));

  AbsoluteRows<T> rows(args.encoding);
  const RowFormat<T> format(x.dtype);
  std::vector<T> table(block * dim);
  std::vector<T> row(dim);
  std::vector<double> at(positions == nullptr ? 0 : positions->axes());
  for (std::int64_t first = 0; first < tokens; first += block) {
    const std::int64_t end = std::min(first + block, tokens);
    for (std::int64_t b = 0; b < batch; ++b) {
      if (b == 0 || !shared) {
        for (std::int64_t t = first; t < end; ++t) {
          for (std::size_t a = 0; a < at.size(); ++a) {
            at[a] = positions->at(static_cast<int>(a), b, t);
          }
          rows.Row(t, at.data(), table.data() + (t - first) * dim);
        }
      }
      for (std::int64_t t = first; t < end; ++t) {
        const std::int64_t place = b * tokens + t;
        const T* const e = table.data() + (t - first) * dim;
        format.Load(x, place * dim, dim, row.data());
        Combine(args.combination, scale, e, dim, row.data());
        format.Store(row.data(), dim, place * out_dim, out);
        if (concatenate) format.Store(e, dim, place * out_dim + dim, out);
      }
    }
  }
}

}  // namespace

absl::StatusOr<Shape> AddEncodingShape(const AddEncodingArgs& args, Dtype dtype,
                                       const Shape& x) {
  const absl::StatusOr<AbsoluteExtents> extents =
      ValidateAbsolute(args.encoding);
  if (!extents.ok()) return Prefixed("encoding", extents.status());
  if (extents->rows.has_value() &&
      !std::holds_alternative<std::monostate>(args.positions)) {
    return FieldInvalid("positions",
                        "given for a grid, whose cells are the rows of x; "
                        "leave them out");
  }
  if (!IsFloating(dtype)) {
    return FieldInvalid("x.dtype",
                        absl::StrCat("is ", DtypeName(dtype),
                                     "; must be float32, float16, bfloat16 or "
                                     "float64"));
  }
  absl::Status status = CheckScale(args.x_scale, dtype);
  if (!status.ok()) return status;
  status = CheckShape(args, *extents, x);
  if (!status.ok()) return status;
  Shape shape = x;
  if (args.combination == Combination::kConcatenate) shape.back() *= 2;
  const absl::StatusOr<std::int64_t> count = ElementCount(shape);
  if (!count.ok()) return Prefixed("x", count.status());
  return shape;
}

absl::Status AddEncoding(const AddEncodingArgs& args, const ConstTensorView& x,
                         const TensorView& out) {
  const absl::StatusOr<Shape> shape = AddEncodingShape(args, x.dtype, x.shape);
  if (!shape.ok()) return shape.status();
  const absl::StatusOr<AbsoluteExtents> extents =
      ValidateAbsolute(args.encoding);
  const std::size_t rank = x.shape.size();
  const TokenExtents tokens = {
      rank == 3 ? x.shape[0] : 1, x.shape[rank - 2],
      std::holds_alternative<PackedSequences>(args.positions)};
  std::optional<TokenPositions> positions;
  if (!extents->rows.has_value()) {
    absl::StatusOr<TokenPositions> expanded = ExpandPositions(
        args.positions, tokens, extents->axes, extents->axes > 1);
    if (!expanded.ok()) return Prefixed("positions", expanded.status());
    // Before anything is written: x may be overwritten in place.
    absl::Status status = CheckReach(args.encoding, *expanded);
    if (!status.ok()) return status;
    positions = *std::move(expanded);
  }
  if (tokens.batch == 0 || tokens.tokens == 0) return absl::OkStatus();
  const TokenPositions* const at = positions ? &*positions : nullptr;
  if (x.dtype == Dtype::kFloat64) {
    Run<double>(args, at, x, out);
  } else {
    Run<float>(args, at, x, out);
  }
  return absl::OkStatus();
}

}  // namespace posenc::core
