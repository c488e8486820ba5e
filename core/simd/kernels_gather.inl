// The rotation of whole tokens that are streamed by a LineStream. Part of
// kernels.inl.

#pragma once

#include <cstddef>

#include "core/simd/kernels.h"
#include "core/simd/kernels_lines.inl"
#include "core/simd/kernels_method.inl"
#include "core/simd/kernels_shape.inl"
#include "core/simd/kernels_stream.inl"

namespace posenc::simd {
namespace {

// `run` begins at the first slice of the job. All slices of a token have the
// same row.
// Several lines have one head each, and are walked page by page
// (kernels_lines.inl).
template <class Dtype>
void GatherTokens(const RotateJob& job, const Method<Dtype>& method,
                  TokenRun<Dtype> run) {
  const JobShape<typename Dtype::Storage> shape(job);
  LineStream<typename Dtype::Isa> stream;
  const auto rotate = [&] {
    stream.Start(reinterpret_cast<char*>(run.dst) - shape.FrontBytes());
    method.by_step(run);
    stream.End();
  };
  run.stream = &stream;
  run.pass = job.pass_offset *
             static_cast<std::ptrdiff_t>(sizeof(typename Dtype::Storage));
  run.pass_bytes = shape.PassBytes();
  run.tokens = job.tokens;
  run.heads = job.heads;
  run.src_stride = job.src_stride;
  run.dst_stride = job.dst_stride;
  run.src_token_stride =
      static_cast<std::ptrdiff_t>(job.heads) * job.src_stride;
  // Tokens of one head are taken for heads of one token that have rows of their
  // own, which takes fewer operations a slice.
  const auto take_for_heads = [&run](std::size_t tokens) {
    run.tokens = 1;
    run.heads = tokens;
    run.head_row_stride = run.row_stride;
  };
  if (job.lines > 1) {
    ForEachLinePage(job, method.order, shape.GatheredTokens(), 1, &run,
                    [&](const LinePage& page) {
                      take_for_heads(page.tokens);
                      rotate();
                    });
    return;
  }
  if (job.heads == 1) take_for_heads(job.tokens);
  run.ahead = job.fetch ? std::ptrdiff_t{kPage} : 0;
  rotate();
}

}  // namespace
}  // namespace posenc::simd
