#include "core/rope/convert_pairing.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "core/error.h"
#include "core/rope/frequencies.h"

namespace posenc::core {
namespace {

absl::Status CheckPairing(absl::string_view field, Pairing pairing) {
  if (pairing == Pairing::kUnspecified) {
    return FieldRequired(field, "is unset; must be half-split or interleaved");
  }
  if (pairing != Pairing::kHalfSplit && pairing != Pairing::kInterleaved) {
    return FieldInvalid(field, absl::StrCat(static_cast<int>(pairing),
                                            "; must be half-split or "
                                            "interleaved"));
  }
  return absl::OkStatus();
}

// Row of a rotated slice of d rows where row i of the other pairing stands.
std::int64_t SourceRow(const ConvertPairingArgs& args, std::int64_t d,
                       std::int64_t i) {
  if (args.old_pairing == args.new_pairing) return i;
  if (args.new_pairing == Pairing::kHalfSplit) {
    return i < d / 2 ? 2 * i : 2 * (i - d / 2) + 1;
  }
  return i % 2 == 0 ? i / 2 : d / 2 + i / 2;
}

// The rotated rows of each head, checked.
absl::StatusOr<std::int64_t> RotatedRows(const ConvertPairingArgs& args,
                                         const Shape& shape) {
  const std::int64_t head_dim = shape[0] / args.heads;
  const bool whole = args.rotary_dim == 0;
  const std::int64_t d = whole ? head_dim : args.rotary_dim;
  if (d < 2 || d % 2 != 0) {
    return FieldInvalid(
        "rotary_dim", absl::StrCat("is ", d, whole ? " (unset: the head)" : "",
                                   "; must be even and at least 2"));
  }
  if (d > head_dim) {
    return FieldInvalid(
        "rotary_dim",
        absl::StrCat("is ", d, ", and the ", shape[0], " rows of weight are ",
                     args.heads, " heads of ", head_dim,
                     "; must not exceed a head"));
  }
  return d;
}

}  // namespace

absl::Status ConvertPairing(const ConvertPairingArgs& args,
                            const ConstTensorView& weight,
                            const TensorView& out) {
  absl::Status status = CheckPairing("old_pairing", args.old_pairing);
  if (status.ok()) status = CheckPairing("new_pairing", args.new_pairing);
  if (!status.ok()) return status;
  if (args.heads == 0) {
    return FieldRequired("heads",
                         "is unset; the rows of weight do not tell it");
  }
  if (args.heads < 0) {
    return FieldInvalid(
        "heads", absl::StrCat("is ", args.heads, "; must be at least 1"));
  }
  if (!IsFloating(weight.dtype)) {
    return FieldInvalid("weight.dtype",
                        absl::StrCat(DtypeName(weight.dtype),
                                     " is no dtype of weights; must be "
                                     "float32, float16, bfloat16 or float64"));
  }
  const Shape& shape = weight.shape;
  if (shape.empty()) {
    return FieldInvalid("weight.shape",
                        "[] is a scalar; must be [heads * head_dim, ...]");
  }
  const absl::StatusOr<std::int64_t> count = ElementCount(shape);
  if (!count.ok()) return Prefixed("weight", count.status());
  if (shape[0] == 0 || shape[0] % args.heads != 0) {
    return MakeError(
        absl::StatusCode::kInvalidArgument, ErrorReason::kShapeMismatch,
        "weight.shape",
        absl::StrCat(ShapeToString(shape), " has ", shape[0], " rows and ",
                     args.heads,
                     " heads; rows must be heads * head_dim, head_dim > 0"),
        {{"expected", absl::StrCat("a multiple of ", args.heads)},
         {"actual", absl::StrCat(shape[0])}});
  }
  const absl::StatusOr<std::int64_t> rotated = RotatedRows(args, shape);
  if (!rotated.ok()) return rotated.status();
  if (*count == 0) return absl::OkStatus();

  const std::int64_t head_dim = shape[0] / args.heads;
  const std::int64_t first =
      args.slice == RotarySlice::kTrailing ? head_dim - *rotated : 0;
  const auto row_bytes =
      static_cast<std::size_t>(*count / shape[0]) * DtypeSize(weight.dtype);
  const auto* const src = static_cast<const std::byte*>(weight.data);
  auto* const dst = static_cast<std::byte*>(out.data);
  std::memcpy(dst, src, row_bytes * shape[0]);
  for (std::int64_t h = 0; h < args.heads; ++h) {
    const std::int64_t slice = h * head_dim + first;
    for (std::int64_t i = 0; i < *rotated; ++i) {
      std::memcpy(dst + (slice + i) * row_bytes,
                  src + (slice + SourceRow(args, *rotated, i)) * row_bytes,
                  row_bytes);
    }
  }
  return absl::OkStatus();
}

}  // namespace posenc::core
