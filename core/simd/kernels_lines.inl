// The rotation of heads that are lines, from memory. Part of kernels.inl.
//
//   head 0     |--page 0--|--page 1--|--page 2-- ..
//   head 1     |--page 0--|--page 1--|--page 2-- ..
//   ..
//
// Some heads rotate a page each, and take turns in it, token by token. The next
// heads follow with the same tokens, and after all heads the next page. So the
// rows of a page stay in the first-level cache for all heads. Each page fetches
// the one that is rotated next.
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
#include "core/simd/kernels_row.inl"

namespace posenc::simd {
namespace {

// The rows of a page's tokens in the order of twins, which are made once for
// all lines: 64 MB of float64, interleaved, of the best copy, by a row for each
// four lines 0.87 .. 0.88, and so 0.90 (Xeon, AVX-512).
template <class Isa, class Real>
class TwinRows {
 public:
  explicit TwinRows(std::size_t pairs) : values_(2 * pairs) {}

  // Tokens that there is room for.
  std::size_t capacity() const { return kValues / (2 * values_); }

  // A call for the reason that PreparedRow::Fill has.
  [[gnu::noinline]] void Fill(const Real* cosines, const Real* sines,
                              std::ptrdiff_t stride, std::size_t tokens) {
    Real* to = rows_;
    for (std::size_t t = 0; t < tokens; ++t) {
      FillTwins<Isa>(cosines, sines, values_ / 2, to, to + values_);
      cosines += stride;
      sines += stride;
      to += 2 * values_;
    }
  }

  const Real* cosines() const { return rows_; }
  const Real* sines() const { return rows_ + values_; }
  std::ptrdiff_t stride() const {
    return static_cast<std::ptrdiff_t>(2 * values_);
  }

 private:
  static constexpr std::size_t kValues = 16 * 1024 / sizeof(Real);

  const std::size_t values_;  // cosines of a row
  alignas(64) Real rows_[kValues];
};

// Some tokens of some lines, which are rotated together.
struct LinePage {
  std::size_t tokens, lines;
};

// Calls rotate(page) for all of a job, `tokens` of up to `lines` lines at once,
// after it has set what *run, a TokenRun or a TurnRun, has to have for a page
// but these numbers. *run is the job's whole before. order: of the rows that
// rotate() wants; those of twins are made here.
template <class Run, class RotatePage>
void ForEachLinePage(const RotateJob& job, RowOrder order, std::size_t tokens,
                     std::size_t lines, Run* run, const RotatePage& rotate) {
  using Dtype = typename Run::Dtype;
  const Run all = *run;
  TwinRows<typename Dtype::Isa, typename Dtype::Real> twins(job.pairs);
  run->ordered = order == RowOrder::kTwins;
  if (run->ordered) tokens = std::min(tokens, twins.capacity());
  const std::size_t columns = (job.lines - 1) / lines + 1;
  const std::size_t pages = ((job.tokens - 1) / tokens + 1) * columns;
  const auto offset = [&](std::size_t page, std::ptrdiff_t stride,
                          std::ptrdiff_t line_stride) {
    return static_cast<std::ptrdiff_t>(page / columns * tokens) * stride +
           static_cast<std::ptrdiff_t>(page % columns * lines) * line_stride;
  };
  for (std::size_t i = 0; i < pages; ++i) {
    const std::size_t token = i / columns * tokens;
    const std::size_t line = i % columns * lines;
    const LinePage page = {std::min(tokens, job.tokens - token),
                           std::min(lines, job.lines - line)};
    const std::ptrdiff_t src = offset(i, job.src_stride, job.src_line_stride);
    const std::ptrdiff_t row = offset(i, all.row_stride, 0);
    run->src = all.src + src;
    run->dst = all.dst + offset(i, job.dst_stride, job.dst_line_stride);
    run->cosines = all.cosines + row;
    run->sines = all.sines + row;
    if (run->ordered) {
      if (line == 0) {
        twins.Fill(run->cosines, run->sines, all.row_stride, page.tokens);
      }
      run->cosines = twins.cosines();
      run->sines = twins.sines();
      run->row_stride = twins.stride();
    }
    const std::ptrdiff_t next =
        offset(i + 1, job.src_stride, job.src_line_stride);
    run->ahead =
        job.fetch ? (next - src) * std::ptrdiff_t{sizeof(*run->src)} : 0;
    rotate(page);
  }
}

}  // namespace
}  // namespace posenc::simd
