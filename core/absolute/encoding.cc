#include "core/absolute/encoding.h"

#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/absolute/fourier.h"
#include "core/absolute/rows.h"
#include "core/absolute/timestep.h"
#include "core/base/error.h"

namespace posenc::core {
namespace {

absl::StatusOr<AbsoluteExtents> Validate(const std::monostate&) {
  return FieldRequired("", "empty; give one encoding");
}

absl::StatusOr<AbsoluteExtents> Validate(const Sinusoidal& encoding) {
  const absl::Status status = ValidateSinusoidal(encoding);
  if (!status.ok()) return Prefixed("sinusoidal", status);
  return AbsoluteExtents{encoding.dim, 1, std::nullopt};
}

absl::StatusOr<AbsoluteExtents> Validate(const LearnedTable& encoding) {
  const absl::Status status = ValidateLearned(encoding);
  if (!status.ok()) return Prefixed("learned", status);
  return AbsoluteExtents{encoding.table->shape[1], 1, std::nullopt};
}

absl::StatusOr<AbsoluteExtents> Validate(const SincosGrid& encoding) {
  const absl::StatusOr<std::int64_t> rows = ValidateGrid(encoding);
  if (!rows.ok()) return Prefixed("sincos_grid", rows.status());
  return AbsoluteExtents{encoding.dim, 1, *rows};
}

absl::StatusOr<AbsoluteExtents> Validate(const Timestep& encoding) {
  const absl::Status status = ValidateTimestep(encoding);
  if (!status.ok()) return Prefixed("timestep", status);
  return AbsoluteExtents{encoding.dim, 1, std::nullopt};
}

absl::StatusOr<AbsoluteExtents> Validate(const FourierFeatures& encoding) {
  const absl::Status status = ValidateFourier(encoding);
  if (!status.ok()) return Prefixed("fourier_features", status);
  const Shape& b = encoding.frequencies->shape;
  return AbsoluteExtents{2 * b[1], static_cast<int>(b[0]), std::nullopt};
}

template <typename T>
std::variant<TrigRows, LearnedRows<T>, GridRows<T>> RowsOf(
    const AbsoluteEncoding& encoding) {
  if (const auto* learned = std::get_if<LearnedTable>(&encoding)) {
    return LearnedRows<T>(*learned);
  }
  if (const auto* grid = std::get_if<SincosGrid>(&encoding)) {
    return GridRows<T>(*grid);
  }
  if (const auto* timestep = std::get_if<Timestep>(&encoding)) {
    return TimestepRows(*timestep);
  }
  if (const auto* fourier = std::get_if<FourierFeatures>(&encoding)) {
    return FourierRows(*fourier);
  }
  return SinusoidalRows(std::get<Sinusoidal>(encoding));
}

template <typename T>
void FillTable(AbsoluteRows<T> rows, const TokenPositions* positions,
               std::int64_t first_row, const TensorView& table) {
  const bool direct = DtypeSize(table.dtype) == sizeof(T);
  const std::int64_t dim = table.shape[1];
  std::vector<T> row(dim);
  std::vector<double> at(positions == nullptr ? 0 : positions->axes());
  for (std::int64_t t = 0; t < table.shape[0]; ++t) {
    for (std::size_t a = 0; a < at.size(); ++a) {
      at[a] = positions->at(static_cast<int>(a), 0, t);
    }
    rows.Row(first_row + t, at.data(), row.data());
    if (direct) {
      std::memcpy(static_cast<char*>(table.data) + t * dim * sizeof(T),
                  row.data(), dim * sizeof(T));
    } else {
      for (std::int64_t c = 0; c < dim; ++c) {
        StoreDouble(row[c], table, t * dim + c);
      }
    }
  }
}

// Copies rows of a trained table of the same dtype, bit for bit.
void CopyRows(const ConstTensorView& from, const TokenPositions& positions,
              const TensorView& table) {
  const std::size_t bytes = table.shape[1] * DtypeSize(table.dtype);
  for (std::int64_t t = 0; t < table.shape[0]; ++t) {
    const auto k = static_cast<std::int64_t>(positions.at(0, 0, t));
    std::memcpy(static_cast<char*>(table.data) + t * bytes,
                static_cast<const char*>(from.data) + k * bytes, bytes);
  }
}

}  // namespace

template <typename T>
AbsoluteRows<T>::AbsoluteRows(const AbsoluteEncoding& encoding)
    : rows_(RowsOf<T>(encoding)) {}

template <typename T>
void AbsoluteRows<T>::Row(std::int64_t t, const double* positions, T* row) {
  if (auto* trig = std::get_if<TrigRows>(&rows_)) {
    trig->Row(positions, row);
  } else if (auto* learned = std::get_if<LearnedRows<T>>(&rows_)) {
    learned->Row(positions[0], row);
  } else {
    std::get<GridRows<T>>(rows_).Row(t, row);
  }
}

template class AbsoluteRows<float>;
template class AbsoluteRows<double>;

absl::StatusOr<AbsoluteExtents> ValidateAbsolute(
    const AbsoluteEncoding& encoding) {
  return std::visit([](const auto& e) { return Validate(e); }, encoding);
}

absl::Status CheckReach(const AbsoluteEncoding& encoding,
                        const TokenPositions& positions, std::int64_t first) {
  const auto* learned = std::get_if<LearnedTable>(&encoding);
  return learned == nullptr ? absl::OkStatus()
                            : CheckLearnedReach(*learned, positions, first);
}

AbsoluteTable::AbsoluteTable(const AbsoluteEncoding& encoding, Dtype dtype)
    : encoding_(encoding),
      rows_(dtype == Dtype::kFloat32
                ? decltype(rows_)(AbsoluteRows<float>(encoding))
                : decltype(rows_)(AbsoluteRows<double>(encoding))) {}

void AbsoluteTable::Fill(const TokenPositions* positions,
                         std::int64_t first_row, const TensorView& part) const {
  const auto* learned = std::get_if<LearnedTable>(&encoding_);
  if (learned != nullptr && !learned->hierarchical_alpha.has_value() &&
      learned->table->dtype == part.dtype) {
    CopyRows(*learned->table, *positions, part);
    return;
  }
  std::visit(
      [&](const auto& rows) { FillTable(rows, positions, first_row, part); },
      rows_);
}

absl::Status BuildAbsolute(const AbsoluteEncoding& encoding,
                           const TokenPositions* positions,
                           const TensorView& table) {
  if (!IsFloating(table.dtype)) {
    return FieldInvalid("dtype",
                        absl::StrCat("is ", DtypeName(table.dtype),
                                     "; must be float32, float16, bfloat16 or "
                                     "float64"));
  }
  if (positions != nullptr) {
    const absl::Status status = CheckReach(encoding, *positions);
    if (!status.ok()) return status;
  }
  // An empty table does not need its frequencies.
  if (table.shape[0] == 0) return absl::OkStatus();
  AbsoluteTable(encoding, table.dtype).Fill(positions, 0, table);
  return absl::OkStatus();
}

}  // namespace posenc::core
