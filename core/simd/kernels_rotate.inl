// The rotation of many slices, and the order in which memory is walked. Part of
// kernels.inl.
//
// In a cache: slice after slice. From memory (any other Memory)
// most CPUs want src to be fetched ahead, and some want several pages walked
// at once, because one core has few requests in flight for each page:
//
//   pages = 4     |--page 0--|--page 1--|--page 2--|--page 3--|--page 4 ...
//                  ^ slice 0  ^ slice 0  ^ slice 0  ^ slice 0
//                    then slice 1 of each, and so on: a group of 16 KiB;
//                    each fetches the slice one group ahead
//
// If a page holds whole tokens, or a token whole pages, one call rotates all
// groups (kernels_turns.inl). If not, each group is a call of its own. Heads
// that are lines are walked page by page (kernels_lines.inl); other lines at
// once, by so many fewer pages each.
//
// Bytes are streamed from registers where the halves of slices, and the
// channels that pass through beside them, are whole cache lines. All others
// (odd widths, cross pairings, vectors of half a line, tensors that begin
// anywhere) are gathered in a buffer first (kernels_stream.inl), token by
// token. 64 MB of float32, of a streaming copy: registers give 0.92 .. 0.95, a
// buffer 0.90 .. 0.92 (Zen 5). 64 of 128 channels, of all types: registers 0.77
// .. 0.90, a buffer 0.54 .. 0.75 (Zen 4, AVX-512). Heads of 80 channels, by the
// buffer, of the best copy: float16 0.83 .. 0.87, bfloat16 0.73 .. 0.84,
// float32 0.92 .. 0.96 (Xeon, AVX-512).

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/simd/kernels.h"
#include "core/simd/kernels_bytes.inl"
#include "core/simd/kernels_convert.inl"
#include "core/simd/kernels_cursor.inl"
#include "core/simd/kernels_fetch.inl"
#include "core/simd/kernels_gather.inl"
#include "core/simd/kernels_lines.inl"
#include "core/simd/kernels_method.inl"
#include "core/simd/kernels_shape.inl"
#include "core/simd/kernels_stream.inl"

namespace posenc::simd {
namespace {

template <class Dtype, PairingIndex kIn, PairingIndex kOut>
class Rotation {
 public:
  using Isa = typename Dtype::Isa;
  using Storage = typename Dtype::Storage;
  using Real = typename Dtype::Real;
  using Cursor = simd::Cursor<Dtype>;

  explicit Rotation(const RotateJob& job) : job_(job), shape_(job) {
    copies_ = job.pass_width > 0 && job.src != job.dst;
    own_rows_ = job.heads == 1 || job.table_head_stride != 0;
    method_ = ChooseMethod<Dtype, kIn, kOut, false>(job.pairs, own_rows_);
    if (job.lines > 1 && job.heads == 1) {
      line_method_ = ChooseMethod<Dtype, kIn, kOut, false>(job.pairs, false);
    }
    if (job.memory != Memory::kCached && job.pages == kMaxLanes && job.fetch &&
        job.heads > 1 && !own_rows_) {
      turn_page_ = shape_.TurnPage();
    }
    if (Streams(job.memory) && job.src != job.dst) PlanStreaming();
    if (copies_ && !passes_ && !own_rows_ && method_.by_step != nullptr) {
      method_.in_tokens = method_.by_step;
      method_.loads_whole = false;
      passes_ = true;
    }
    if (job.memory == Memory::kCached && job.src == job.dst &&
        method_.in_place != nullptr) {
      method_.in_tokens = method_.in_place;
    }
    ahead_ = AheadInCache<Dtype>(job);
  }

  void Run() {
    if (job_.lines == 0 || job_.tokens == 0 || job_.heads == 0 ||
        job_.pairs == 0) {
      return;
    }
    if (gathers_) return Gather();
    if (job_.lines > 1 && job_.memory != Memory::kCached && job_.fetch &&
        job_.pages > 1 && LinesAreHeads()) {
      return RotateLinePages();
    }
    for (std::size_t line = 0; line < job_.lines; line += kMaxLanes) {
      const std::size_t lines = std::min(job_.lines - line, kMaxLanes);
      if (lines > 1 && LinesAreHeads()) {
        RotateLines(line, lines);
        continue;
      }
      if (job_.memory == Memory::kCached) {
        RunGroup(line, lines, 0, 1, job_.tokens * job_.heads);
      } else {
        RunCold(line, lines);
      }
    }
  }

 private:
  static constexpr auto kSize = static_cast<std::ptrdiff_t>(sizeof(Storage));

  // Whether lines can be rotated as the heads of tokens are.
  bool LinesAreHeads() const {
    return job_.heads == 1 && !copies_ && line_method_.in_tokens != nullptr &&
           (job_.pages == 1 || line_method_.by_turns != nullptr);
  }

  // Decides how bytes are streamed, if they can be: those of slices without
  // gaps.
  void PlanStreaming() {
    const std::size_t width = 2 * job_.pairs + job_.pass_width;
    const auto after = static_cast<std::ptrdiff_t>(2 * job_.pairs);
    const auto before = -static_cast<std::ptrdiff_t>(job_.pass_width);
    if (job_.dst_stride != static_cast<std::ptrdiff_t>(width) ||
        (job_.pass_width > 0 && job_.pass_offset != after &&
         job_.pass_offset != before)) {
      return;
    }
    if (shape_.HasWholeLines()) {
      const Method<Dtype> streaming =
          ChooseMethod<Dtype, kIn, kOut, true>(job_.pairs, own_rows_);
      passes_ = copies_ && !own_rows_ &&
                (job_.pages == 1 ? streaming.in_tokens != nullptr
                                 : turn_page_ > 0 && streaming.by_turns);
      if (streaming.run != nullptr && copies_ == passes_) method_ = streaming;
      const Method<Dtype> by_lines =
          ChooseMethod<Dtype, kIn, kOut, true>(job_.pairs, false);
      if (line_method_.in_tokens != nullptr && by_lines.in_tokens != nullptr &&
          !copies_) {
        line_method_ = by_lines;
      }
      if (method_.streams || line_method_.streams) return;
    }
    gathers_ = width * sizeof(Storage) <= LineStream<Isa>::kMaxSlice;
  }

  void RunCold(std::size_t first_line, std::size_t lines) {
    const std::size_t slices = job_.tokens * job_.heads;
    const std::size_t page = shape_.PageSlices();
    const std::size_t pages =
        std::max<std::size_t>(1, std::min(job_.pages, kMaxLanes) / lines);
    // One group; four pages of 16 bits in place, which wait for conversions as
    // well. Float16, interleaved, of the best scaling in place at 64 MB: 0.59
    // .. 0.67 by one page, 0.70 by two, 0.76 .. 0.80 by four; bfloat16 0.77 ..
    // 0.83 and 0.86. Float32 loses 0.03 by four, out of place nothing gains.
    const bool far = job_.src == job_.dst && sizeof(Storage) == 2;
    // What CPUs find by themselves if slices are loaded whole they do not if
    // steps take the halves of float64 in turns: 64 MB by AVX2, fetched and
    // not, half-split 0.66 and 0.44 of the best copy, 0.60 and 0.33 of the best
    // scaling in place; interleaved 0.90 and 0.77, 0.77 and 0.73 (Zen 4).
    const bool by_step = sizeof(Storage) == sizeof(double) &&
                         method_.by_step != nullptr && !method_.loads_whole;
    ahead_ = job_.fetch || by_step
                 ? static_cast<std::ptrdiff_t>((far ? kMaxLanes : pages) *
                                               page * shape_.SliceBytes())
                 : 0;
    std::size_t done = 0;
    if (lines == 1 && turn_page_ > 0 && method_.by_turns != nullptr &&
        (!copies_ || method_.streams)) {
      done = RunTurns(first_line);
    } else if (pages > 1 && !TakesTokensByStep()) {
      for (; done + pages * page <= slices; done += pages * page) {
        RunGroup(first_line, lines, done, pages, page);
      }
    }
    RunGroup(first_line, lines, done, 1, slices - done);
  }

  // Tokens of widths that the compiler does not know are faster one after
  // another than by four pages at once. Heads of 80 channels, as a part of a
  // memcpy, four pages and so: 8 MB out of place float32 interleaved 0.75 and
  // 0.89, bfloat16 0.73 and 0.82; 64 MB in place bfloat16 0.90 and 1.13,
  // float16 1.11 and 1.20 (Xeon, AVX-512).
  bool TakesTokensByStep() const {
    return method_.by_step != nullptr && method_.in_tokens == method_.by_step &&
           !own_rows_ && (!copies_ || passes_);
  }

  // Slices [first, first + pages * page) of each line.
  void RunGroup(std::size_t first_line, std::size_t lines, std::size_t first,
                std::size_t pages, std::size_t page) {
    const std::size_t lanes = lines * pages;
    for (std::size_t i = 0; i < lanes; ++i) {
      cursors_[i].MoveTo(job_, first_line + i % lines,
                         first + i / lines * page);
    }
    Rotate(cursors_, lanes, page, nullptr);
  }

  // Rotates the next `slices` slices of each cursor, token by token, and moves
  // the cursors on. They are written to `dst`, or to the cursors' if that is
  // null.
  void Rotate(Cursor* cursors, std::size_t lanes, std::size_t slices,
              Storage* dst) const {
    SliceRun<Dtype> run;
    run.lanes = lanes;
    run.src_stride = job_.src_stride;
    run.dst_stride = job_.dst_stride;
    run.pairs = job_.pairs;
    run.ahead = ahead_;
    run.from_memory = job_.memory != Memory::kCached;
    run.row_stride =
        job_.heads == 1 ? job_.table_token_stride : job_.table_head_stride;
    while (slices > 0) {
      const std::size_t tokens =
          lanes == 1 ? WholeTokens(cursors[0], slices) : 0;
      // One call for a single token pays if that needs no row in registers.
      if (tokens > 1 || (tokens == 1 && (passes_ || !method_.loads_whole))) {
        const std::size_t n = tokens * job_.heads;
        RotateTokens(&cursors[0], tokens, dst);
        if (dst != nullptr) {
          dst += static_cast<std::ptrdiff_t>(n) * job_.dst_stride;
        }
        slices -= n;
        continue;
      }
      run.count = slices;
      for (std::size_t i = 0; i < lanes; ++i) {
        Cursor* const at = &cursors[i];
        if (job_.heads > 1) {
          run.count = std::min(run.count, job_.heads - at->head);
        }
        run.src[i] = at->src;
        run.dst[i] = dst != nullptr ? dst : at->dst;
        run.cosines[i] = at->row;
        run.sines[i] = at->row + job_.table_sine_offset;
        if (method_.order == RowOrder::kPlain) continue;
        if (at->prepared_of != at->row) {
          at->prepared.Fill(method_.order, run.cosines[i], run.sines[i],
                            job_.pairs);
          at->prepared_of = at->row;
        }
        run.cosines[i] = at->prepared.cosines;
        run.sines[i] = at->prepared.sines;
      }
      method_.run(run);
      if (copies_) CopyPassing(run, job_.pass_offset, shape_.PassBytes());
      for (std::size_t i = 0; i < lanes; ++i) {
        cursors[i].Advance(job_, run.count);
      }
      if (dst != nullptr) {
        dst += static_cast<std::ptrdiff_t>(run.count) * job_.dst_stride;
      }
      slices -= run.count;
    }
  }

  // Tokens among the next `slices` that one call can rotate.
  std::size_t WholeTokens(const Cursor& at, std::size_t slices) const {
    const bool can = method_.in_tokens != nullptr && !own_rows_ &&
                     (!copies_ || passes_) && at.head == 0;
    return can ? slices / job_.heads : 0;
  }

  // Rotates whole tokens, and moves the cursor on.
  void RotateTokens(Cursor* at, std::size_t tokens, Storage* dst) const {
    const auto heads = static_cast<std::ptrdiff_t>(job_.heads);
    TokenRun<Dtype> run = From<TokenRun<Dtype>>(*at);
    run.from_memory = job_.memory != Memory::kCached;
    if (dst != nullptr) run.dst = dst;
    run.src_stride = job_.src_stride;
    run.dst_stride = job_.dst_stride;
    run.src_token_stride = heads * job_.src_stride;
    run.dst_token_stride = heads * job_.dst_stride;
    run.tokens = tokens;
    run.heads = job_.heads;
    run.streams = method_.streams;
    method_.in_tokens(run);
    const auto n = static_cast<std::ptrdiff_t>(tokens);
    at->src += n * run.src_token_stride;
    at->dst += n * run.dst_token_stride;
    at->row += n * job_.table_token_stride;
  }

  // Rotates the groups of pages that a line has. Returns their slices.
  std::size_t RunTurns(std::size_t line) {
    cursors_[0].MoveTo(job_, line, 0);
    TurnRun<Dtype> run = From<TurnRun<Dtype>>(cursors_[0]);
    SetPages(job_, turn_page_, &run);
    method_.by_turns(run);
    return run.groups * kMaxLanes * turn_page_;
  }

  // Rotates lines of one head as the heads of tokens.
  void RotateLines(std::size_t first_line, std::size_t lines) {
    cursors_[0].MoveTo(job_, first_line, 0);
    TokenRun<Dtype> run = From<TokenRun<Dtype>>(cursors_[0]);
    run.from_memory = job_.memory != Memory::kCached;
    run.src_stride = job_.src_line_stride;
    run.dst_stride = job_.dst_line_stride;
    run.src_token_stride = job_.src_stride;
    run.dst_token_stride = job_.dst_stride;
    run.tokens = job_.tokens;
    run.heads = lines;
    if (job_.memory != Memory::kCached && job_.fetch) {
      run.ahead = static_cast<std::ptrdiff_t>(shape_.PageSlices() *
                                              shape_.SliceBytes());
    }
    line_method_.in_tokens(run);
  }

  // The same from memory.
  void RotateLinePages() {
    cursors_[0].MoveTo(job_, 0, 0);
    TurnRun<Dtype> run = From<TurnRun<Dtype>>(cursors_[0]);
    run.src_place = job_.src_line_stride;
    run.dst_place = job_.dst_line_stride;
    run.src_group = job_.src_stride;
    run.dst_group = job_.dst_stride;
    run.turns = run.tokens_of_place = 1;
    run.far = job_.memory == Memory::kFar;
    ForEachLinePage(job_, line_method_.turns_order, shape_.PageSlices(),
                    kMaxLanes, &run, [&](const LinePage& page) {
                      run.groups = page.tokens;
                      run.places = run.places_of_token = page.lines;
                      line_method_.by_turns(run);
                    });
  }

  // Streams by a LineStream.
  void Gather() {
    const bool by_lines = job_.lines > 1;
    // A row of planes would have to be made for every slice.
    const Method<Dtype>& method =
        by_lines && line_method_.order != RowOrder::kPlanes ? line_method_
                                                            : method_;
    if (method.by_step == nullptr ||
        (job_.heads > 1 && job_.table_head_stride != 0)) {
      ahead_ = job_.fetch ? std::ptrdiff_t{kPage} : 0;
      for (std::size_t line = 0; line < job_.lines; ++line) GatherLine(line);
      return;
    }
    cursors_[0].MoveTo(job_, 0, 0);
    GatherTokens(job_, method, From<TokenRun<Dtype>>(cursors_[0]));
  }

  // The same of slices that no run of tokens can rotate.
  void GatherLine(std::size_t line) {
    Cursor* const at = &cursors_[0];
    at->MoveTo(job_, line, 0);
    LineStream<Isa> stream;
    stream.Start(reinterpret_cast<char*>(at->dst) - shape_.FrontBytes());
    const std::size_t width =
        2 * job_.pairs * sizeof(Storage) + shape_.PassBytes();
    const std::size_t piece = std::max<std::size_t>(1, kPiece / width);
    for (std::size_t left = job_.tokens * job_.heads; left > 0;) {
      const std::size_t slices = std::min(left, piece);
      char* const to = stream.next();
      Rotate(at, 1, slices,
             reinterpret_cast<Storage*>(to + shape_.FrontBytes()));
      stream.set_next(stream.Take(to + slices * width));
      left -= slices;
    }
    stream.End();
  }

  // What TokenRun and TurnRun have in common.
  template <class Run>
  Run From(const Cursor& at) const {
    Run run = {};
    run.src = at.src;
    run.dst = at.dst;
    run.cosines = at.row;
    run.sines = at.row + job_.table_sine_offset;
    run.row_stride = job_.table_token_stride;
    run.pairs = job_.pairs;
    run.ahead = ahead_;
    if (passes_) {
      run.pass = job_.pass_offset * kSize;
      run.pass_bytes = shape_.PassBytes();
    }
    return run;
  }

  // Not copied: a load of what narrower stores have just written waits for the
  // store buffer, which is full of streamed bytes.
  const RotateJob& job_;
  const JobShape<Storage> shape_;
  bool copies_;  // channels that pass through
  bool own_rows_;
  bool passes_ = false;  // they are streamed beside the slices of whole tokens
  Method<Dtype> method_;
  Method<Dtype> line_method_ = {};  // of lines that are rotated as heads
  std::size_t turn_page_ = 0;       // slices of a place, if pages take turns
  bool gathers_ = false;            // writes by a LineStream
  std::ptrdiff_t ahead_ = 0;  // bytes from a slice to what is fetched with it
  Cursor cursors_[kMaxLanes];
};

template <class Dtype, PairingIndex kIn, PairingIndex kOut>
void Rotate(const RotateJob& job) {
  Rotation<Dtype, kIn, kOut>(job).Run();
}

}  // namespace
}  // namespace posenc::simd
