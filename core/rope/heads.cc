#include "core/rope/heads.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "core/error.h"
#include "core/simd/dispatch.h"

namespace posenc::core {
namespace {

int DtypeIndexOf(Dtype dtype) {
  switch (dtype) {
    case Dtype::kFloat16:
      return simd::kF16;
    case Dtype::kBfloat16:
      return simd::kBf16;
    case Dtype::kFloat64:
      return simd::kF64;
    default:
      return simd::kF32;
  }
}

int PairingIndexOf(Pairing pairing) {
  return pairing == Pairing::kInterleaved ? simd::kInterleaved : simd::kHalf;
}

}  // namespace

absl::StatusOr<LayoutOrder> FindLayout(Layout layout) {
  static constexpr LayoutOrder kOrders[] = {{"BSHD", 4, 0, 1, 2},
                                            {"BHSD", 4, 0, 2, 1},
                                            {"SBHD", 4, 1, 0, 2},
                                            {"THD", 3, -1, 0, 1}};
  const int i = static_cast<int>(layout) - 1;
  if (i >= 0 && i < 4) return kOrders[i];
  return FieldInvalid("layout",
                      absl::StrCat(static_cast<int>(layout),
                                   "; must be BSHD, BHSD, SBHD or THD"));
}

absl::StatusOr<Heads> ReadHeads(const ConstTensorView& tensor,
                                const LayoutOrder& order) {
  if (!IsFloating(tensor.dtype)) {
    return FieldInvalid("dtype",
                        absl::StrCat(DtypeName(tensor.dtype),
                                     " cannot be rotated; must be float32, "
                                     "float16, bfloat16 or float64"));
  }
  const Shape& shape = tensor.shape;
  if (static_cast<int>(shape.size()) != order.rank) {
    return FieldInvalid(
        "shape",
        absl::StrCat(ShapeToString(shape), " has rank ", shape.size(),
                     "; layout ", order.name, " has rank ", order.rank));
  }
  const absl::StatusOr<std::int64_t> count = ElementCount(shape);
  if (!count.ok()) return count.status();
  if (shape.back() == 0) {
    return FieldInvalid("shape", absl::StrCat(ShapeToString(shape),
                                              " has head_dim 0; must be > 0"));
  }
  Heads heads;
  if (order.batch >= 0) heads.batch = shape[order.batch];
  heads.tokens = shape[order.token];
  heads.heads = shape[order.head];
  heads.head_dim = shape.back();
  // An empty tensor is never walked, and its strides may not be representable.
  if (*count == 0) return heads;
  std::int64_t stride = heads.head_dim;
  for (int i = order.rank - 2; i >= 0; --i) {
    if (i == order.batch) heads.batch_stride = stride;
    if (i == order.token) heads.token_stride = stride;
    if (i == order.head) heads.head_stride = stride;
    stride *= shape[i];
  }
  return heads;
}

absl::Status CheckHeadCount(const ResolvedRope& rope,
                            const ConstTensorView& tensor, const Heads& heads,
                            absl::string_view name) {
  if (rope.heads == 0 || rope.heads == heads.heads) return absl::OkStatus();
  return MakeError(
      absl::StatusCode::kInvalidArgument, ErrorReason::kShapeMismatch,
      absl::StrCat(name, ".shape"),
      absl::StrCat(ShapeToString(tensor.shape), " has ", heads.heads,
                   " heads; the frequencies are given for ", rope.heads),
      {{"expected", absl::StrCat(rope.heads)},
       {"actual", absl::StrCat(heads.heads)}});
}

std::vector<Segment> SegmentsOf(const RopeSpec& spec, std::int64_t head_dim) {
  if (spec.nope) return {};
  const std::int64_t start = spec.slice == RotarySlice::kTrailing
                                 ? head_dim - spec.rotary_dim
                                 : std::int64_t{0};
  if (!spec.axes.has_value() || !spec.axes->halves_per_axis) {
    return {{start, 0, spec.rotary_dim / 2}};
  }
  std::vector<Segment> segments;
  std::int64_t first = 0;
  for (const std::int32_t pairs : spec.axes->sections) {
    if (pairs > 0) segments.push_back({start + 2 * first, first, pairs});
    first += pairs;
  }
  return segments;
}

HeadPlan PlanHeads(Dtype dtype, std::int64_t head_dim, const RopeSpec& spec,
                   std::vector<Segment> segments, Pairing from, Pairing to) {
  HeadPlan plan;
  plan.dtype = dtype;
  plan.element = DtypeSize(dtype);
  plan.segments = std::move(segments);
  const std::int64_t width = spec.nope ? 0 : spec.rotary_dim;
  plan.pass_channel = spec.slice == RotarySlice::kTrailing ? 0 : width;
  plan.pass_width = head_dim - width;
  plan.rotate =
      simd::ActiveKernels().rotate[DtypeIndexOf(dtype)][PairingIndexOf(from)]
                                  [PairingIndexOf(to)];
  plan.same_pairing = PairingIndexOf(from) == PairingIndexOf(to);
  return plan;
}

}  // namespace posenc::core
