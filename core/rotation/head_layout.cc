#include "core/rotation/head_layout.h"

#include "absl/strings/str_cat.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"

namespace posenc::core {

absl::StatusOr<LayoutOrder> FindLayout(Layout layout) {
  static constexpr LayoutOrder kOrders[] = {{"BSHD", 4, 0, 1, 2},
                                            {"BHSD", 4, 0, 2, 1},
                                            {"SBHD", 4, 1, 0, 2},
                                            {"THD", 3, -1, 0, 1}};
  const int i = static_cast<int>(layout) - 1;
  if (i >= 0 && i < 4) return kOrders[i];
  return MustBe("layout", static_cast<int>(layout), "BSHD, BHSD, SBHD or THD");
}

absl::Status CheckHeadDtype(Dtype dtype, bool takes_int8) {
  if (IsFloating(dtype) || IsFloat8(dtype)) return absl::OkStatus();
  if (takes_int8 && dtype == Dtype::kInt8) return absl::OkStatus();
  return FieldInvalid(
      "dtype",
      absl::StrCat(DtypeName(dtype),
                   " cannot be rotated; must be float32, float16, bfloat16, "
                   "float64, float8_e4m3fn",
                   takes_int8 ? ", float8_e5m2 or int8" : " or float8_e5m2"));
}

absl::StatusOr<HeadLayout> ReadHeadLayout(const ConstTensorView& tensor,
                                          const LayoutOrder& order,
                                          bool takes_int8) {
  RETURN_IF_ERROR(CheckHeadDtype(tensor.dtype, takes_int8));
  const Shape& shape = tensor.shape;
  if (static_cast<int>(shape.size()) != order.rank) {
    return FieldInvalid(
        "shape",
        absl::StrCat(ShapeToString(shape), " has rank ", shape.size(),
                     "; layout ", order.name, " has rank ", order.rank));
  }
  RETURN_IF_ERROR(ElementCount(shape).status());
  if (shape.back() == 0) {
    return FieldInvalid("shape", absl::StrCat(ShapeToString(shape),
                                              " has head_dim 0; must be > 0"));
  }
  HeadLayout layout;
  if (order.batch >= 0) layout.batch = shape[order.batch];
  layout.tokens = shape[order.token];
  layout.heads = shape[order.head];
  layout.head_dim = shape.back();
  return layout;
}

absl::Status CheckSaturation(Saturation saturation, Dtype dtype,
                             absl::string_view name) {
  if (!IsFloat8(dtype) || saturation == Saturation::kFinite ||
      saturation == Saturation::kNone) {
    return absl::OkStatus();
  }
  if (saturation == Saturation::kUnspecified) {
    return FieldRequired(
        "saturation",
        absl::StrCat("is unset, and ", name, " is ", DtypeName(dtype),
                     "; say whether results past its largest number become "
                     "that number (finite) or not (none)"));
  }
  return MustBe("saturation", static_cast<int>(saturation), "finite or none");
}

absl::Status CheckHeadCount(const ResolvedRope& rope,
                            const ConstTensorView& tensor,
                            const HeadLayout& layout, absl::string_view name) {
  if (rope.heads == 0 || rope.heads == layout.heads) return absl::OkStatus();
  return ShapeMismatch(
      absl::StrCat(name, ".shape"),
      absl::StrCat(ShapeToString(tensor.shape), " has ", layout.heads,
                   " heads; the frequencies are given for ", rope.heads),
      absl::StrCat(rope.heads), absl::StrCat(layout.heads));
}

}  // namespace posenc::core
