// Where a rotation of many slices is in its work. Part of kernels.inl.

#pragma once

#include <cstddef>

#include "core/simd/kernels.h"
#include "core/simd/kernels_row.inl"

namespace posenc::simd {
namespace {

// A place in the work: a slice, and the row that it is rotated by.
template <class Dtype>
struct Cursor {
  using Storage = typename Dtype::Storage;
  using Real = typename Dtype::Real;

  const Storage* src;
  Storage* dst;
  const Real* row;
  std::size_t head;
  const Real* prepared_of = nullptr;  // the row that `prepared` holds
  PreparedRow<typename Dtype::Isa, Real> prepared;

  void MoveTo(const RotateJob& job, std::size_t line, std::size_t slice) {
    const auto l = static_cast<std::ptrdiff_t>(line);
    const auto i = static_cast<std::ptrdiff_t>(slice);
    src = static_cast<const Storage*>(job.src) + l * job.src_line_stride +
          i * job.src_stride;
    dst = static_cast<Storage*>(job.dst) + l * job.dst_line_stride +
          i * job.dst_stride;
    head = slice % job.heads;
    row = static_cast<const Real*>(job.table) +
          static_cast<std::ptrdiff_t>(slice / job.heads) *
              job.table_token_stride +
          static_cast<std::ptrdiff_t>(head) * job.table_head_stride;
  }
  // By n slices that stay in one token, or that are a token each.
  void Advance(const RotateJob& job, std::size_t n) {
    const auto i = static_cast<std::ptrdiff_t>(n);
    src += i * job.src_stride;
    dst += i * job.dst_stride;
    if (job.heads == 1) {
      row += i * job.table_token_stride;
      return;
    }
    row += i * job.table_head_stride;
    head += n;
    if (head == job.heads) {
      head = 0;
      row += job.table_token_stride -
             static_cast<std::ptrdiff_t>(job.heads) * job.table_head_stride;
    }
  }
};

}  // namespace
}  // namespace posenc::simd
