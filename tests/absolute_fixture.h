// Rows of an absolute encoding, in any dtype.

#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "core/absolute/encoding.h"

namespace posenc::core {

template <typename T>
constexpr Dtype kDtypeOf = sizeof(T) == 8   ? Dtype::kFloat64
                           : sizeof(T) == 4 ? Dtype::kFloat32
                                            : Dtype::kFloat16;

// T: float, double, or uint16_t for the 16-bit dtypes.
template <typename T>
std::vector<T> Build(const AbsoluteEncoding& encoding,
                     const std::vector<double>& positions,
                     Dtype dtype = kDtypeOf<T>) {
  const absl::StatusOr<AbsoluteExtents> extents = ValidateAbsolute(encoding);
  EXPECT_TRUE(extents.ok()) << extents.status();
  const std::int64_t rows = extents->rows.value_or(
      static_cast<std::int64_t>(positions.size()) / extents->axes);
  std::vector<T> table(rows * extents->dim, T(77));
  const TokenPositions at(positions, extents->axes, 1, rows);
  const absl::Status status =
      BuildAbsolute(encoding, extents->rows.has_value() ? nullptr : &at,
                    {dtype, {rows, extents->dim}, table.data()});
  EXPECT_TRUE(status.ok()) << status;
  return table;
}

}  // namespace posenc::core
