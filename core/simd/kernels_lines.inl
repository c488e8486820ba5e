// The rotation of heads that are lines, from memory. Part of kernels.inl.
//
//   head 0     |--page 0--|--page 1--|--page 2-- ..
//   head 1     |--page 0--|--page 1--|--page 2-- ..
//   ..
//
// Up to kMaxLanes heads take turns, token by token, until each has rotated a
// page. The next heads follow with the same tokens, and after all heads the
// next page. So the rows of a page stay in the first-level cache for all heads.
// Each page fetches the one that is rotated next.
//
// 64 MB out of place, 32 heads of 128 channels, of the best copy, by all tokens
// of a block for four heads and then for the next four, and so: float16 0.83 ..
// 0.84 and 0.89, bfloat16 0.84 .. 0.85 and 0.89, float32 0.91 and 0.93 .. 0.94,
// float64 0.86 .. 0.88 and 0.88 .. 0.89. Half a page or two of a head, or two
// heads at once, are slower by 0.02 and more (Xeon, AVX-512).

#pragma once

#include <algorithm>
#include <cstddef>

#include "core/simd/kernels.h"
#include "core/simd/kernels_slice.inl"
#include "core/simd/kernels_turns.inl"

namespace posenc::simd {
namespace {

// Lines of one head each. `run` is where the first begins.
template <class Dtype>
void RotateLinePages(const RotateJob& job, RunTurns<Dtype> by_turns,
                     TurnRun<Dtype> run) {
  using Storage = typename Dtype::Storage;
  constexpr auto kSize = static_cast<std::ptrdiff_t>(sizeof(Storage));
  const auto slice_bytes = static_cast<std::size_t>(job.src_stride * kSize);
  const std::size_t page = std::max<std::size_t>(1, kPage / slice_bytes);
  const std::size_t calls_of_page = (job.lines - 1) / kMaxLanes + 1;
  const std::size_t calls = ((job.tokens - 1) / page + 1) * calls_of_page;
  const auto token = [&](std::size_t call) {
    return static_cast<std::ptrdiff_t>(call / calls_of_page * page);
  };
  const auto line = [&](std::size_t call) {
    return static_cast<std::ptrdiff_t>(call % calls_of_page * kMaxLanes);
  };
  const auto src = [&](std::size_t call) {
    return token(call) * job.src_stride + line(call) * job.src_line_stride;
  };
  const TurnRun<Dtype> first = run;
  run.src_place = job.src_line_stride;
  run.dst_place = job.dst_line_stride;
  run.src_group = job.src_stride;
  run.dst_group = job.dst_stride;
  run.turns = run.tokens_of_place = 1;
  for (std::size_t call = 0; call < calls; ++call) {
    run.src = first.src + src(call);
    run.dst = first.dst + token(call) * job.dst_stride +
              line(call) * job.dst_line_stride;
    run.cosines = first.cosines + token(call) * first.row_stride;
    run.sines = first.sines + token(call) * first.row_stride;
    run.groups =
        std::min(page, job.tokens - static_cast<std::size_t>(token(call)));
    run.places = run.places_of_token =
        std::min(kMaxLanes, job.lines - static_cast<std::size_t>(line(call)));
    run.ahead = (src(call + 1) - src(call)) * kSize;
    // Its share of the work of others, all of which the last one does.
    Meanwhile share = {};
    if (job.meanwhile != nullptr) {
      share = *job.meanwhile;
      share.parts /= calls - call;
      job.meanwhile->parts -= share.parts;
      run.meanwhile = &share;
    }
    by_turns(run);
    if (job.meanwhile != nullptr) job.meanwhile->parts += share.parts;
  }
}

}  // namespace
}  // namespace posenc::simd
