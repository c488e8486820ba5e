#include "core/rotation/convert_pairing.h"

#include "absl/strings/str_cat.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/rope/frequencies.h"

namespace posenc::core {
namespace {

absl::Status CheckPairing(absl::string_view field, Pairing pairing) {
  if (pairing == Pairing::kUnspecified) {
    return FieldRequired(field, "is unset; must be half-split or interleaved");
  }
  if (pairing != Pairing::kHalfSplit && pairing != Pairing::kInterleaved) {
    return MustBe(field, static_cast<int>(pairing),
                  "half-split or interleaved");
  }
  return absl::OkStatus();
}

// Checks the arguments and returns the number of rotated rows of each head.
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

absl::Status CheckConvertPairing(const ConvertPairingArgs& args) {
  Faults faults;
  faults.Note(CheckPairing("old_pairing", args.old_pairing));
  faults.Note(CheckPairing("new_pairing", args.new_pairing));
  if (args.heads == 0) {
    faults.Note(FieldRequired(
        "heads",
        "is 0; must be at least 1, because the rows of weight do not tell it"));
  } else if (args.heads < 0) {
    faults.Note(FieldInvalid(
        "heads", absl::StrCat("is ", args.heads, "; must be at least 1")));
  }
  return faults.status();
}

absl::StatusOr<PairingRows> PairingRows::Create(const ConvertPairingArgs& args,
                                                Dtype dtype,
                                                const Shape& shape) {
  Faults faults;
  faults.Note(CheckConvertPairing(args));
  if (!IsFloating(dtype) && !IsFloat8(dtype)) {
    faults.Note(FieldInvalid(
        "weight.dtype",
        absl::StrCat(DtypeName(dtype),
                     " is no dtype of weights; must be float32, float16, "
                     "bfloat16, float64, float8_e4m3fn or float8_e5m2")));
  }
  if (shape.empty()) {
    faults.Note(FieldInvalid(
        "weight.shape", "[] is a scalar; must be [heads * head_dim, ...]"));
  }
  RETURN_IF_ERROR(faults.status());
  const absl::StatusOr<std::int64_t> count = ElementCount(shape);
  RETURN_IF_ERROR(Prefixed("weight", count.status()));
  if (shape[0] == 0 || shape[0] % args.heads != 0) {
    return ShapeMismatch(
        "weight.shape",
        absl::StrCat(ShapeToString(shape), " has ", shape[0], " rows and ",
                     args.heads,
                     " heads; rows must be heads * head_dim, head_dim > 0"),
        absl::StrCat("a multiple of ", args.heads), absl::StrCat(shape[0]));
  }
  ASSIGN_OR_RETURN(const std::int64_t rotated, RotatedRows(args, shape));
  PairingRows rows;
  rows.to_half_split_ = args.new_pairing == Pairing::kHalfSplit;
  rows.same_ = args.old_pairing == args.new_pairing;
  rows.rows_ = shape[0];
  rows.head_dim_ = shape[0] / args.heads;
  rows.rotated_ = rotated;
  rows.first_ =
      args.slice == RotarySlice::kTrailing ? rows.head_dim_ - rotated : 0;
  rows.row_bytes_ =
      static_cast<std::size_t>(*count / shape[0]) * DtypeSize(dtype);
  return rows;
}

std::int64_t PairingRows::Source(std::int64_t row) const {
  const std::int64_t slice = row - row % head_dim_ + first_;
  const std::int64_t i = row - slice;
  if (same_ || i < 0 || i >= rotated_) return row;
  const std::int64_t half = rotated_ / 2;
  if (to_half_split_) return slice + (i < half ? 2 * i : 2 * (i - half) + 1);
  return slice + i / 2 + (i % 2 == 0 ? 0 : half);
}

}  // namespace posenc::core
