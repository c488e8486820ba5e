// How the slices of a rotation lie in memory. Part of kernels.inl.

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/simd/kernels.h"
#include "core/simd/kernels_slice.inl"

namespace posenc::simd {
namespace {

template <class Storage>
class JobShape {
 public:
  explicit JobShape(const RotateJob& job) : job_(job) {}

  std::size_t PassBytes() const { return job_.pass_width * sizeof(Storage); }
  // Of the channels in front of a slice.
  std::size_t FrontBytes() const {
    return job_.pass_offset < 0 ? PassBytes() : 0;
  }
  std::size_t SliceBytes() const {
    return static_cast<std::size_t>(job_.src_stride) * sizeof(Storage);
  }
  std::size_t PageSlices() const {
    return std::max<std::size_t>(1, kPage / SliceBytes());
  }

  // Slices of the pages that take turns: about kPage bytes, and some tokens or
  // an equal part of one. 0 if there are none such.
  std::size_t TurnPage() const {
    const std::size_t most = PageSlices();
    std::size_t page = most / job_.heads * job_.heads;
    if (page == 0) {
      page = most;
      while (job_.heads % page != 0) --page;
    }
    return page * SliceBytes() >= kPage / 2 ? page : 0;
  }

  // Whether a line of the job begins inside a cache line of dst.
  bool SomeLinesAreCut() const {
    const auto begin = reinterpret_cast<std::uintptr_t>(job_.dst);
    const auto line_bytes =
        static_cast<std::size_t>(job_.dst_line_stride) * sizeof(Storage);
    return (begin - FrontBytes()) % kLine != 0 ||
           (job_.lines > 1 && line_bytes % kLine != 0);
  }
  // Whether halves, and what passes through, begin and end at cache lines.
  bool HasWholeLines() const {
    return !SomeLinesAreCut() && job_.pairs * sizeof(Storage) % kLine == 0 &&
           PassBytes() % kLine == 0;
  }

  // Tokens of a page of a line that is gathered: whole cache lines, and if
  // lines are cut, two pages, so that fewer are. 64 MB, 32 heads of 80 channels
  // that begin inside cache lines, of the best copy, by one and two: float16
  // 0.60 and 0.68, float32 the same (Xeon, AVX-512).
  std::size_t GatheredTokens() const {
    std::size_t whole = 1;
    while (whole * SliceBytes() % kLine != 0) whole *= 2;
    const std::size_t page = (SomeLinesAreCut() ? 2 : 1) * PageSlices();
    return page > whole ? page / whole * whole : page;
  }

 private:
  const RotateJob& job_;
};

}  // namespace
}  // namespace posenc::simd
