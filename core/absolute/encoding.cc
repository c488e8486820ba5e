#include "core/absolute/encoding.h"

#include <cstring>
#include <iterator>
#include <type_traits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/absolute/kinds.h"
#include "core/absolute/rows.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"

namespace posenc::core {
namespace {

// The proto fields of the encodings, in the order of AbsoluteEncoding.
constexpr absl::string_view kFields[] = {
    "", "sinusoidal", "learned", "sincos_grid", "timestep", "fourier_features"};
static_assert(std::size(kFields) == std::variant_size_v<AbsoluteEncoding>);

absl::StatusOr<AbsoluteExtents> Validate(std::monostate) {
  return FieldRequired("", "empty; give one encoding");
}

template <typename T>
std::variant<TrigRows, LearnedRows<T>, GridRows<T>> MakeRows(
    const AbsoluteEncoding& encoding) {
  if (const auto* learned = std::get_if<LearnedTable>(&encoding)) {
    return LearnedRows<T>(*learned);
  }
  if (const auto* grid = std::get_if<SincosGrid>(&encoding)) {
    return GridRows<T>(*grid);
  }
  if (const auto* timestep = std::get_if<Timestep>(&encoding)) {
    return RowsOf(*timestep);
  }
  if (const auto* fourier = std::get_if<FourierFeatures>(&encoding)) {
    return RowsOf(*fourier);
  }
  return RowsOf(std::get<Sinusoidal>(encoding));
}

template <typename T>
void FillTable(AbsoluteRows<T> rows, const TokenPositions* positions,
               std::int64_t first_row, const TensorView& table) {
  const std::int64_t dim = table.shape[1];
  const std::size_t bytes = dim * DtypeSize(table.dtype);
  std::vector<T> row(dim);
  std::vector<double> at(positions == nullptr ? 0 : positions->axes());
  for (std::int64_t t = 0; t < table.shape[0]; ++t) {
    for (std::size_t a = 0; a < at.size(); ++a) {
      at[a] = positions->at(static_cast<int>(a), 0, t);
    }
    rows.Row(first_row + t, at.data(), row.data());
    char* const out = static_cast<char*>(table.data) + t * bytes;
    if constexpr (std::is_same_v<T, float>) {
      std::memcpy(out, row.data(), bytes);
    } else {
      StoreDoubles(row.data(), dim, table.dtype, out);
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
    : rows_(MakeRows<T>(encoding)) {}

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
  const absl::StatusOr<AbsoluteExtents> extents =
      std::visit([](const auto& e) { return Validate(e); }, encoding);
  RETURN_IF_ERROR(Prefixed(kFields[encoding.index()], extents.status()));
  return extents;
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

}  // namespace posenc::core
