#include "core/absolute/grid.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "core/absolute/kinds.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "core/positions/positions.h"

namespace posenc::core {
namespace {

Sinusoidal AxisEncoding(const SincosGrid& encoding) {
  Sinusoidal axis;
  axis.dim = encoding.dim / static_cast<std::int32_t>(encoding.extents.size());
  axis.base = encoding.base;
  axis.order = SinusoidalOrder::kSinCos;
  return axis;
}

absl::Status ValidateSteps(const SincosGrid& encoding) {
  const std::size_t axes = encoding.extents.size();
  if (encoding.steps.empty()) return absl::OkStatus();
  if (encoding.steps.size() != axes) {
    return FieldInvalid("steps", absl::StrCat("has ", encoding.steps.size(),
                                              " values for ", axes,
                                              " extents; give one each, or "
                                              "none"));
  }
  for (std::size_t a = 0; a < axes; ++a) {
    const double step = encoding.steps[a];
    if (!(step > 0) || !std::isfinite(step)) {
      return MustBe(absl::StrCat("steps[", a, "]"), step, "finite and > 0");
    }
    const double last = (encoding.extents[a] - 1) * step;
    if (last > kMaxPosition) {
      return FieldInvalid(
          absl::StrCat("steps[", a, "]"),
          absl::StrCat("is ", NumberText(step), ", which puts the last of ",
                       encoding.extents[a], " cells at ", PlainNumber(last),
                       "; positions are within +-2^31"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<AbsoluteExtents> Validate(const SincosGrid& encoding) {
  if (encoding.extents.empty()) {
    return FieldRequired("extents",
                         "is empty; must have the cells of each axis");
  }
  const auto axes = static_cast<std::int64_t>(encoding.extents.size());
  if (encoding.dim < 1 || encoding.dim > kMaxAbsoluteDim ||
      encoding.dim % (2 * axes) != 0) {
    return MustBe("dim", encoding.dim,
                  absl::StrCat("a multiple of ", 2 * axes,
                               ", a sine and a cosine for each of ", axes,
                               " axes, and at most ", kMaxAbsoluteDim));
  }
  RETURN_IF_ERROR(CheckSinusoidBase(encoding.base));
  if (encoding.leading_zero_rows < 0) {
    return MustBe("leading_zero_rows", encoding.leading_zero_rows, ">= 0");
  }
  const std::int64_t limit =
      (std::int64_t{1} << 62) / encoding.dim - encoding.leading_zero_rows;
  std::int64_t cells = 1;
  for (std::size_t a = 0; a < encoding.extents.size(); ++a) {
    const std::int64_t extent = encoding.extents[a];
    if (extent < 1) {
      return MustBe(absl::StrCat("extents[", a, "]"), extent, ">= 1");
    }
    if (cells > limit / extent) {
      return FieldInvalid(
          "extents",
          absl::StrCat(ShapeToString(Shape(encoding.extents.begin(),
                                           encoding.extents.end())),
                       " cells of ", encoding.dim,
                       " channels are more than 2^62 elements; ask for less"));
    }
    cells *= extent;
  }
  RETURN_IF_ERROR(ValidateSteps(encoding));
  return AbsoluteExtents{encoding.dim, 1, encoding.leading_zero_rows + cells};
}

template <typename T>
GridRows<T>::GridRows(const SincosGrid& encoding)
    : dim_(encoding.dim),
      zero_rows_(encoding.leading_zero_rows),
      axis_rows_(RowsOf(AxisEncoding(encoding))) {
  const std::size_t axes = encoding.extents.size();
  const auto width = static_cast<std::int64_t>(axis_rows_.dim());
  for (std::size_t a = 0; a < axes; ++a) {
    const std::size_t slot = encoding.last_axis_first ? axes - 1 - a : a;
    axes_.push_back(
        {encoding.extents[a], encoding.steps.empty() ? 1 : encoding.steps[a],
         static_cast<std::int64_t>(slot) * width, -1, std::vector<T>(width)});
  }
}

template <typename T>
void GridRows<T>::Row(std::int64_t t, T* row) {
  if (t < zero_rows_) {
    std::fill_n(row, dim_, T{0});
    return;
  }
  std::int64_t cell = t - zero_rows_;
  for (std::size_t a = axes_.size(); a-- > 0;) {
    Axis& axis = axes_[a];
    const std::int64_t index = cell % axis.extent;
    cell /= axis.extent;
    if (axis.index != index) {
      const double position = static_cast<double>(index) * axis.step;
      axis_rows_.Row(&position, axis.values.data());
      axis.index = index;
    }
    std::copy(axis.values.begin(), axis.values.end(), row + axis.channel);
  }
}

template class GridRows<float>;
template class GridRows<double>;

}  // namespace posenc::core
