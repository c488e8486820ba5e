#include "core/relative/check.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/positions/positions.h"

namespace posenc::core {
namespace {

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

}  // namespace

absl::Status CheckFloating(absl::string_view field, Dtype dtype) {
  if (IsFloating(dtype)) return absl::OkStatus();
  return FieldInvalid(
      field, absl::StrCat(DtypeName(dtype),
                          "; must be float32, float16, bfloat16 or float64"));
}

absl::Status CheckCount(absl::string_view field, std::int64_t count) {
  if (count >= 1) return absl::OkStatus();
  const std::string fact = absl::StrCat("is ", count, "; must be at least 1");
  return count == 0 ? FieldRequired(field, fact) : FieldInvalid(field, fact);
}

absl::Status CheckHeads(std::int64_t heads) {
  if (heads <= kMaxHeads) return CheckCount("heads", heads);
  return FieldInvalid("heads",
                      absl::StrCat("is ", heads, "; at most ", kMaxHeads));
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
  return WrongShape(absl::StrCat(field, ".shape"), expected,
                    ShapeToString(tensor->shape));
}

absl::Status CheckWidth(absl::string_view field, absl::string_view name,
                        std::int64_t width) {
  if (width <= kMaxWidth) return absl::OkStatus();
  return FieldInvalid(field, absl::StrCat(name, " is ", width,
                                          "; must be at most ", kMaxWidth));
}

absl::Status CheckPositions(absl::string_view start_field, std::int64_t start,
                            std::int64_t length) {
  const auto out_of_range = [&](const std::string& fact, std::int64_t index) {
    return PositionOutOfRange(
        start_field, absl::StrCat(fact, "; positions are within +-2^31"),
        index);
  };
  if (start < -kMaxPosition || start > kMaxPosition) {
    return out_of_range(absl::StrCat(start), 0);
  }
  if (length > 0 && length - 1 > kMaxPosition - start) {
    return out_of_range(
        absl::StrCat(start, " + ", length - 1,
                     " is the position of the last of ", length, " tokens"),
        length - 1);
  }
  return absl::OkStatus();
}

}  // namespace posenc::core
