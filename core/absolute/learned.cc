#include "core/absolute/learned.h"

#include <cmath>
#include <string>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "core/absolute/kinds.h"
#include "core/absolute/rows.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "core/simd/dispatch.h"

namespace posenc::core {

absl::StatusOr<AbsoluteExtents> Validate(const LearnedTable& encoding) {
  RETURN_IF_ERROR(CheckTensor("table", encoding.table, {{"rows"}, {"dim"}}));
  const ConstTensorView& table = *encoding.table;
  // Limits the memory of workers: each worker keeps rows of this width.
  if (table.shape[1] > kMaxAbsoluteDim) {
    return FieldInvalid("table.shape",
                        absl::StrCat("dim is ", table.shape[1], "; at most ",
                                     kMaxAbsoluteDim, " is served"));
  }
  if (encoding.hierarchical_alpha.has_value()) {
    const double alpha = *encoding.hierarchical_alpha;
    // The condition is negated so that it also rejects NaN.
    if (!(alpha > 0 && alpha < 1)) {
      return MustBe("hierarchical_alpha", alpha,
                    "in (0, 1), 0.4 is the article's");
    }
    if (alpha == 0.5) {
      return FieldInvalid("hierarchical_alpha",
                          "is 0.5, which gives positions i * rows + j and "
                          "j * rows + i the same row; 0.4 is the article's");
    }
  }
  return AbsoluteExtents{table.shape[1]};
}

absl::Status CheckReach(const AbsoluteEncoding& encoding,
                        const TokenPositions& positions, std::int64_t first) {
  const auto* const learned = std::get_if<LearnedTable>(&encoding);
  if (learned == nullptr) return absl::OkStatus();
  const bool extended = learned->hierarchical_alpha.has_value();
  const auto rows = static_cast<double>(learned->table->shape[0]);
  const double reach = extended ? rows * rows : rows;
  const std::vector<double>& values = positions.values();
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double p = values[i];
    const bool whole = p == std::floor(p);
    if (whole && p >= 0 && p < reach) continue;
    const std::string rule =
        !whole
            ? "a trained table has whole positions only"
            : absl::StrCat("a table of ", learned->table->shape[0], " rows ",
                           extended ? "extended to their square " : "",
                           "has 0 to ", PlainNumber(reach - 1),
                           p < 0 || extended ? "" : "; see hierarchical_alpha");
    const auto index = first + static_cast<std::int64_t>(i);
    return PositionOutOfRange(
        "positions",
        absl::StrCat("element ", index, " is ", PlainNumber(p), "; ", rule),
        index);
  }
  return absl::OkStatus();
}

template <typename T>
LearnedRows<T>::LearnedRows(const LearnedTable& encoding)
    : table_(*encoding.table),
      rows_(table_.shape[0]),
      dim_(table_.shape[1]),
      alpha_(encoding.hierarchical_alpha.value_or(0)) {
  if (alpha_ != 0) {
    first_.resize(dim_);
    outer_.resize(dim_);
    inner_.resize(dim_);
    Load(0, first_.data());
  }
}

template <typename T>
template <typename U>
void LearnedRows<T>::Load(std::int64_t k, U* row) {
  if constexpr (std::is_same_v<U, double>) {
    LoadDoubles(table_, k * dim_, dim_, row);
  } else if (table_.dtype == Dtype::kFloat64) {
    for (std::int64_t c = 0; c < dim_; ++c) {
      row[c] = static_cast<float>(ElementAsDouble(table_, k * dim_ + c));
    }
  } else {
    const std::size_t bytes = dim_ * DtypeSize(table_.dtype);
    simd::ActiveKernels().widen[KernelIndex(table_.dtype)](
        static_cast<const char*>(table_.data) + k * bytes, row, dim_);
  }
}

template <typename T>
void LearnedRows<T>::Row(double position, T* row) {
  const auto p = static_cast<std::int64_t>(position);
  const std::int64_t i = p / rows_;
  if (i == 0) return Load(p, row);
  Load(i, outer_.data());
  Load(p % rows_, inner_.data());
  for (std::int64_t c = 0; c < dim_; ++c) {
    // Computes alpha * u_i + (1 - alpha) * u_j. The factor 1 - alpha cancels
    // the divisor of u_j.
    const double shift = alpha_ * first_[c];
    row[c] = static_cast<T>(alpha_ * ((outer_[c] - shift) / (1 - alpha_)) +
                            (inner_[c] - shift));
  }
}

template class LearnedRows<float>;
template class LearnedRows<double>;

}  // namespace posenc::core
