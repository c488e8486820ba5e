// The loop over slices, for all rotations. Part of kernels.inl.

#pragma once

#include <cstddef>
#include <type_traits>

#include "core/simd/kernels.h"
#include "core/simd/kernels_convert.inl"
#include "core/simd/kernels_slice.inl"
#include "core/simd/kernels_step.inl"
#include "core/simd/kernels_stream.inl"

namespace posenc::simd {
namespace {

// The slices of some tokens. The slices of a token share a row of cosines and
// sines. These slices are rotated in `turns` turns of `places` slices each. The
// slices of a turn are place_stride apart, and each turn begins turn_stride
// after the previous turn. Strides are in elements.
template <class DtypeType>
struct Walk {
  using Dtype = DtypeType;
  using Storage = typename Dtype::Storage;
  using Real = typename Dtype::Real;

  const Storage* src;
  Storage* dst;
  const Real* cosines;  // in the table's order
  const Real* sines;
  std::ptrdiff_t row_stride;  // from token to token
  std::size_t tokens, turns, places;
  std::ptrdiff_t token_stride, turn_stride, place_stride;
  std::size_t pairs;
  // The distance in bytes from src to the prefetched bytes. If the tensor is in
  // a cache, 0 means that nothing is prefetched.
  std::ptrdiff_t ahead;
  // Copies the pass_bytes bytes at offset `pass` from the start of each slice.
  std::ptrdiff_t pass;
  std::size_t pass_bytes;
  // If not null, this stream gathers the output of each turn. In this case, dst
  // must have no gaps between slices.
  LineStream<typename Dtype::Isa>* stream;
};

template <class Dtype>
using RunWalks = void (*)(const Walk<Dtype>&);

// The loops use only local variables, because vector stores may alias anything
// in memory. After each store, the compiler would load all other variables
// again. One call rotates all tokens, because a call for each token costs 60 to
// 90 cycles (Zen 5).
//
// A streamed rotation of float32 or float64 prefetches into the second-level
// cache, which is 1.05 times as fast as prefetching into the first-level cache.
// This does not make types of 16 bits faster, and it makes rotations in place
// slower (Xeon, AVX-512).
template <class Slice, Memory kMemory>
void RunWalk(const Walk<typename Slice::Dtype>& walk) {
  using Dtype = typename Slice::Dtype;
  using Storage = typename Dtype::Storage;
  using Real = typename Dtype::Real;
  constexpr auto kSize = static_cast<std::ptrdiff_t>(sizeof(Storage));
  constexpr int kCache =
      kMemory == Memory::kStreamed && kIsNative<Dtype> ? 2 : 3;
  constexpr bool kReorders = Slice::kOrder != RowOrder::kPlain;
  [[maybe_unused]] std::conditional_t<
      kReorders, PreparedRow<typename Dtype::Isa, Real>, int>
      prepared;
  const std::size_t pairs = Slice::kPairs > 0 ? Slice::kPairs : walk.pairs;
  const std::size_t slice_bytes = 2 * pairs * sizeof(Storage);
  const std::size_t turns = walk.turns, places = walk.places;
  const std::ptrdiff_t place_step = walk.place_stride * kSize;
  const std::ptrdiff_t turn_gap =
      walk.turn_stride * kSize -
      static_cast<std::ptrdiff_t>(places) * place_step;
  const std::ptrdiff_t token_gap =
      (walk.token_stride -
       static_cast<std::ptrdiff_t>(turns) * walk.turn_stride) *
      kSize;
  const std::ptrdiff_t row_step = walk.row_stride, ahead = walk.ahead;
  const std::ptrdiff_t pass = walk.pass;
  const std::size_t pass_bytes = walk.pass_bytes;
  LineStream<typename Dtype::Isa>* const stream = walk.stream;
  const std::size_t front = pass < 0 ? pass_bytes : 0;

  const char* from = reinterpret_cast<const char*>(walk.src);
  char* to = reinterpret_cast<char*>(walk.dst);
  if (stream != nullptr) to = stream->Start(to - front) + front;
  RowInMemory<Dtype> plain = {walk.cosines, walk.sines};
  for (std::size_t token = walk.tokens; token > 0; --token) {
    RowInMemory<Dtype> in_memory = plain;
    if constexpr (kReorders) {
      prepared.Fill(Slice::kOrder, plain.cosines, plain.sines, pairs);
      in_memory = {prepared.cosines, prepared.sines};
    }
    const typename Slice::Row row(in_memory);
    for (std::size_t turn = turns; turn > 0; --turn) {
      for (std::size_t place = places; place > 0; --place) {
        if (kMemory != Memory::kCached || ahead != 0) {
          Fetch<kCache>(from + ahead, slice_bytes);
        }
        Slice::Rotate(row, reinterpret_cast<const Storage*>(from),
                      reinterpret_cast<Storage*>(to), pairs);
        if (pass_bytes > 0) {
          if constexpr (kMemory != Memory::kCached) {
            Fetch<kCache>(from + pass + ahead, pass_bytes);
          }
          if constexpr (kMemory == Memory::kStreamed) {
            StreamBytes<typename Dtype::Isa>(from + pass, to + pass,
                                             pass_bytes);
          } else {
            CopyBytes<typename Dtype::Isa>(from + pass, to + pass, pass_bytes);
          }
        }
        from += place_step;
        to += place_step;
        // Without this asm statement, compilers keep more loop variables than
        // there are general registers.
        asm("" : "+r"(from), "+r"(to));
      }
      from += turn_gap;
      to += turn_gap;
      if (stream != nullptr) to = stream->Take(to - front) + front;
    }
    from += token_gap;
    to += token_gap;
    plain = {plain.cosines + row_step, plain.sines + row_step};
  }
  if (stream != nullptr) stream->End(to - front);
}

}  // namespace
}  // namespace posenc::simd
