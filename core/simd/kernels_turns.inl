// The rotation of slices that stand in several places, which take turns. Part
// of kernels.inl.
//
//   a group of 4 pages    |--place 0--|--place 1--|--place 2--|--place 3--|
//                          ^ slice 0   ^ slice 0   ^ slice 0   ^ slice 0
//                            then slice 1 of each, and so on
//
// From memory only: each slice fetches the one that stands a group further on.
// Its steps are stored one by one, so that loads and streamed stores alternate:
// 64 MB out of place, of the best copy, by whole slices and by steps: float16
// 0.91 and 0.95, bfloat16 0.90 and 0.96; in place, of the best scaling, float32
// 0.88 and 0.98, float16 0.70 and 0.86 (Xeon with AVX-512, rows that are
// ready).

#pragma once

#include <algorithm>
#include <cstddef>
#include <type_traits>

#include "core/simd/kernels.h"
#include "core/simd/kernels_bytes.inl"
#include "core/simd/kernels_row.inl"
#include "core/simd/kernels_slice.inl"
#include "core/simd/kernels_tokens.inl"

namespace posenc::simd {
namespace {

// All strides are in elements.
template <class DtypeType>
struct TurnRun {
  using Dtype = DtypeType;
  using Storage = typename Dtype::Storage;
  using Real = typename Dtype::Real;

  const Storage* src;  // slice 0 of place 0 of the first group
  Storage* dst;
  const Real* cosines;  // as the table has them
  const Real* sines;
  std::ptrdiff_t src_stride;  // of the slices of a place
  std::ptrdiff_t dst_stride;
  std::ptrdiff_t src_place;  // from place to place of a group
  std::ptrdiff_t dst_place;
  std::ptrdiff_t src_group;  // from group to group
  std::ptrdiff_t dst_group;
  std::ptrdiff_t row_stride;  // from token to token
  std::size_t groups;
  std::size_t places;  // of a group, up to kMaxLanes
  std::size_t turns;   // slices of a place that share a row
  // A token has slices in some places that follow one another, or a place holds
  // some tokens; the other number is 1.
  std::size_t places_of_token;
  std::size_t tokens_of_place;
  std::size_t pairs;
  std::ptrdiff_t ahead;  // bytes from src to what is fetched
  bool far;              // as Memory::kFar
  // As in TokenRun.
  std::ptrdiff_t pass;
  std::size_t pass_bytes;
  bool ordered;  // rows are in the order of the step; only with shared rows
};

// Sets what *run has to have for all groups of a line: pages of so many slices,
// which are some tokens or an equal part of one.
template <class Dtype>
void SetPages(const RotateJob& job, std::size_t page, TurnRun<Dtype>* run) {
  const auto place = static_cast<std::ptrdiff_t>(page);
  const auto group = static_cast<std::ptrdiff_t>(kMaxLanes) * place;
  run->src_stride = job.src_stride;
  run->dst_stride = job.dst_stride;
  run->src_place = place * job.src_stride;
  run->dst_place = place * job.dst_stride;
  run->src_group = group * job.src_stride;
  run->dst_group = group * job.dst_stride;
  run->groups = job.tokens * job.heads / (kMaxLanes * page);
  run->places = kMaxLanes;
  run->turns = std::min(page, job.heads);
  run->places_of_token = job.heads / run->turns;
  run->tokens_of_place = page / run->turns;
  run->ahead = group * job.src_stride * std::ptrdiff_t{sizeof(*run->src)};
  run->far = job.memory == Memory::kFar;
}

template <class Dtype>
using RunTurns = void (*)(const TurnRun<Dtype>&);

// One slice. kSteps: of it; 0 if the compiler does not know.
//
// What is streamed is fetched into the second-level cache: 256 MB out of place,
// of the best copy, from the first and from the second: float32 0.92 .. 0.94
// and 0.98, float64 0.89 .. 0.92 and 0.94 .. 0.96. In place so is what no cache
// holds: 256 MB, of a scaling, float32 0.94 and 0.94, interleaved 0.91 and
// 0.92, float64 0.90 and 0.92, 0.86 and 0.92; but 64 MB of float32, from a
// third-level cache, 0.97 and 0.95. Types of 16 bits gain nothing by it, and in
// place they lose 0.04 (Xeon, AVX-512).
template <class Step, std::size_t kSteps, bool kPasses, bool kStream>
struct TurnSlice {
  using Dtype = typename Step::Dtype;
  using Storage = typename Dtype::Storage;
  static constexpr int kCache = kStream && kIsNative<Dtype> ? 2 : 3;

  bool far;
  std::size_t pairs;
  std::ptrdiff_t ahead;
  std::ptrdiff_t pass;
  std::size_t pass_bytes;

  explicit TurnSlice(const TurnRun<Dtype>& run)
      : far(run.far),
        pairs(kSteps > 0 ? kSteps * Step::kPairs : run.pairs),
        ahead(run.ahead),
        pass(run.pass),
        pass_bytes(run.pass_bytes) {}

  template <class Row>
  [[gnu::always_inline]] void Rotate(const Row& row, const Storage* src,
                                     Storage* dst) const {
    const char* const bytes = reinterpret_cast<const char*>(src);
    const std::size_t size = 2 * pairs * sizeof(Storage);
    if constexpr (!kStream && kIsNative<Dtype>) {
      if (far) {
        Fetch<2>(bytes + ahead, size);
      } else {
        Fetch<3>(bytes + ahead, size);
      }
    } else {
      Fetch<kCache>(bytes + ahead, size);
    }
    if constexpr (kSteps > 0) {
      RotateSliceUnchecked<Step, kSteps>(row, src, dst);
    } else {
      for (std::size_t i = 0; i < pairs; i += Step::kPairs) {
        Step step;
        step.Load(src, i, pairs);
        step.Rotate(row, i, pairs);
        step.Store(i, pairs, dst);
      }
    }
    if constexpr (kPasses) {
      Fetch<kCache>(bytes + pass + ahead, pass_bytes);
      StreamBytes<typename Dtype::Isa>(
          bytes + pass, reinterpret_cast<char*>(dst) + pass, pass_bytes);
    }
  }
};

// Whether rows of twins are made in registers, of plain ones.
template <class Step, bool kInRegisters>
inline constexpr bool kMakesTwinRows =
    kInRegisters&& Step::kOrder ==
    RowOrder::kTwins&&
        kHasTwins<typename Step::Dtype::Isa, typename Step::Dtype::Real>;

// Rotates groups whose places are all in one token, and so share a row.
template <class Step, std::size_t kSteps, bool kInRegisters, bool kPasses,
          bool kStream>
void RotateSharedTurns(const TurnRun<typename Step::Dtype>& run) {
  using Dtype = typename Step::Dtype;
  using Storage = typename Dtype::Storage;
  constexpr bool kTwins = kMakesTwinRows<Step, kInRegisters>;
  constexpr std::size_t kRowVectors = kSteps * Step::kRowVectors;
  using Row = std::conditional_t<
      kTwins, TwinsInRegisters<Dtype, kRowVectors>,
      std::conditional_t<kInRegisters, RowInRegisters<Dtype, kRowVectors>,
                         RowInMemory<Dtype>>>;
  const TurnSlice<Step, kSteps, kPasses, kStream> slice(run);
  const std::ptrdiff_t src_step = run.src_stride, dst_step = run.dst_stride;
  const std::ptrdiff_t src_place = run.src_place, dst_place = run.dst_place;
  const std::size_t places = run.places, turns = run.turns;
  const auto steps = static_cast<std::ptrdiff_t>(turns);
  const std::ptrdiff_t src_gap = run.src_group - steps * src_step;
  const std::ptrdiff_t dst_gap = run.dst_group - steps * dst_step;
  const std::size_t groups_of_token = run.places_of_token / places;
  [[maybe_unused]] const bool ordered = run.ordered;
  TokenRow<Step> token_row;
  RowInMemory<Dtype> plain = {run.cosines, run.sines}, in_memory = plain;
  const Storage* from = run.src;
  Storage* to = run.dst;
  std::size_t left = 0;  // groups of the token
  for (std::size_t group = run.groups; group > 0; --group) {
    if (left == 0) {
      left = groups_of_token;
      in_memory = plain;
      if constexpr (!kTwins) {
        if (!ordered) {
          in_memory =
              token_row.Ordered(plain.cosines, plain.sines, slice.pairs);
        }
      }
      plain = {plain.cosines + run.row_stride, plain.sines + run.row_stride};
    }
    --left;
    const Row row(in_memory);
    for (std::size_t turn = turns; turn > 0; --turn) {
      const Storage* src = from;
      Storage* dst = to;
      for (std::size_t place = places; place > 0; --place) {
        slice.Rotate(row, src, dst);
        src += src_place;
        dst += dst_place;
      }
      from += src_step;
      to += dst_step;
    }
    from += src_gap;
    to += dst_gap;
  }
}

// Rotates groups that hold several tokens, so that places have rows of their
// own.
template <class Step, std::size_t kSteps, bool kPasses, bool kStream>
void RotateTurns(const TurnRun<typename Step::Dtype>& run) {
  using Dtype = typename Step::Dtype;
  using Storage = typename Dtype::Storage;
  const TurnSlice<Step, kSteps, kPasses, kStream> slice(run);
  const std::ptrdiff_t src_step = run.src_stride, dst_step = run.dst_stride;
  const std::ptrdiff_t src_place = run.src_place, dst_place = run.dst_place;
  const std::size_t places = run.places, turns = run.turns;
  const std::size_t tokens = run.tokens_of_place;
  const auto steps = static_cast<std::ptrdiff_t>(tokens * turns);
  const std::ptrdiff_t src_gap = run.src_group - steps * src_step;
  const std::ptrdiff_t dst_gap = run.dst_group - steps * dst_step;
  const auto row_of = [&run](std::size_t token) {
    return static_cast<std::ptrdiff_t>(token) * run.row_stride;
  };
  TokenRow<Step> ordered[kMaxLanes];
  const Storage* from = run.src;
  Storage* to = run.dst;
  std::size_t first = 0;  // the first place of the group, of all
  for (std::size_t group = run.groups; group > 0; --group) {
    for (std::size_t token = 0; token < tokens; ++token) {
      RowInMemory<Dtype> rows[kMaxLanes];
      std::size_t last = 0;
      for (std::size_t k = 0; k < places; ++k) {
        const std::size_t number =
            (first + k) / run.places_of_token * tokens + token;
        if (k > 0 && number == last) {
          rows[k] = rows[k - 1];
          continue;
        }
        last = number;
        rows[k] = ordered[k].Ordered(run.cosines + row_of(number),
                                     run.sines + row_of(number), slice.pairs);
      }
      for (std::size_t turn = turns; turn > 0; --turn) {
        const Storage* src = from;
        Storage* dst = to;
        for (std::size_t k = 0; k < places; ++k) {
          slice.Rotate(rows[k], src, dst);
          src += src_place;
          dst += dst_place;
        }
        from += src_step;
        to += dst_step;
      }
    }
    from += src_gap;
    to += dst_gap;
    first += places;
  }
}

template <class Step, std::size_t kSteps, bool kInRegisters, bool kStream>
void RunByTurns(const TurnRun<typename Step::Dtype>& run) {
  const bool shared =
      run.tokens_of_place == 1 && run.places_of_token % run.places == 0;
  const auto rotate = [&]<bool kPasses>() {
    if (shared) {
      return RotateSharedTurns<Step, kSteps, kInRegisters, kPasses, kStream>(
          run);
    }
    RotateTurns<Step, kSteps, kPasses, kStream>(run);
  };
  if constexpr (kStream) {
    if (run.pass_bytes > 0) return rotate.template operator()<true>();
  }
  rotate.template operator()<false>();
}

}  // namespace
}  // namespace posenc::simd
