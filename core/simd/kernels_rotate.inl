// Chooses how a rotation processes its slices, and in which order. Part of
// kernels.inl.
//
// A rotation of a tensor in a cache processes one token after another. A
// rotation of a tensor in main memory uses prefetches. On CPUs that allow few
// requests in flight for each memory page, such a rotation also processes
// several pages at the same time:
//
//   a token of heads, with alternating pages     |--page 0--|--page 1--|--
//                                                 ^ head 0   ^ head 8
//                                                   then heads 1 and 9
//
//   heads of tokens (head-major)     head 0  |--page 0--|--page 1--|--
//                                    head 1  |--page 0--|--page 1--|--
//
//   A few heads are rotated together, one page of each head; the heads
//   alternate after each token. The next heads follow with the same tokens. The
//   next pages follow after all heads, so that rows of cosines and sines stay
//   in the first-level cache. While a page is rotated, the next page is
//   prefetched.
//
// Non-temporal stores write directly from registers if the halves of slices,
// and the channels that pass through, are whole cache lines. Other tensors have
// odd widths, different pairings of input and output, vectors of half a line,
// or no alignment; their slices are first gathered in a buffer
// (kernels_stream.inl).

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "core/simd/kernels.h"
#include "core/simd/kernels_convert.inl"
#include "core/simd/kernels_float8_slice.inl"
#include "core/simd/kernels_slice.inl"
#include "core/simd/kernels_step.inl"
#include "core/simd/kernels_stream.inl"
#include "core/simd/kernels_walk.inl"

namespace posenc::simd {
namespace {

template <class Step, Memory kMemory>
RunWalks<typename Step::Dtype> WalkBySteps(std::size_t pairs) {
  RunWalks<typename Step::Dtype> run = &RunWalk<AnySlice<Step>, kMemory>;
  // FP8 is rotated step by step, because its conversions are slow and whole
  // slices did not make it faster (ADR 11).
  if constexpr (!kIsFloat8<typename Step::Dtype>) {
    const auto choose = [&]<std::size_t kSteps>() {
      if (pairs == kSteps * Step::kPairs) {
        run = &RunWalk<WholeSlice<Step, kSteps, kMemory == Memory::kCached>,
                       kMemory>;
      }
    };
    choose.template operator()<1>();
    choose.template operator()<2>();
    choose.template operator()<4>();
    choose.template operator()<8>();
  }
  return run;
}

// Returns the loop for the slices of the job. Returns null for kStreamed if
// this width or pairing is not written in whole vectors.
template <class Dtype, PairingIndex kIn, PairingIndex kOut, Memory kMemory>
RunWalks<Dtype> ChooseWalk(const RotateJob& job) {
  using Prepared = PreparedRow<typename Dtype::Isa, typename Dtype::Real>;
  constexpr bool kStream = kMemory == Memory::kStreamed;
  const std::size_t pairs = job.pairs;
  // Reordering a row saves time if several slices share the row.
  [[maybe_unused]] const bool prepares =
      job.heads > 1 && pairs <= Prepared::kMaxPairs;
  if constexpr (kIn == kOut && kIsFloat8<Dtype> &&
                requires { Dtype::Isa::LoadHalves; }) {
    const auto run = []<std::size_t kWidth>() {
      return &RunWalk<Float8Slice<Dtype, kIn, kStream, kWidth>, kMemory>;
    };
    if (Float8Slice<Dtype, kIn, kStream, 0>::Takes(job)) {
      return pairs == 32   ? run.template operator()<32>()
             : pairs == 64 ? run.template operator()<64>()
                           : run.template operator()<0>();
    }
  }
  // Splitting pairs of bfloat16 is cheaper than TwinStep.
  if constexpr (kIn == kInterleaved && kOut == kInterleaved &&
                !kIsBf16<Dtype>) {
    using Twin = TwinStep<Dtype, kStream>;
    if (prepares && pairs >= Twin::kPairs) {
      return WalkBySteps<Twin, kMemory>(pairs);
    }
  }
  if constexpr (kIn == kHalf && kOut == kHalf) {
    // If there are instructions that convert to bfloat16, PlaneStep is not
    // faster than HalfStep, because the instructions' results would have to be
    // interleaved. Without these instructions, PlaneStep is about 1.2 times as
    // fast (AVX-512, Xeon).
    if constexpr (kIsBf16<Dtype> && !Dtype::Isa::kConvertsBf16) {
      using Plane = PlaneStep<Dtype, kStream>;
      if (prepares && pairs % Plane::kPairs == 0) {
        return WalkBySteps<Plane, kMemory>(pairs);
      }
    }
    using Half = HalfStep<Dtype, kStream>;
    if (pairs % Half::kPairs == 0) return WalkBySteps<Half, kMemory>(pairs);
  }
  constexpr bool kStreamsPairs = kIsBf16<Dtype> && kOut == kInterleaved;
  if constexpr (!kStream || kStreamsPairs) {
    using One = OneStep<Dtype, kIn, kOut, kStream>;
    if (pairs >= One::kPairs) return WalkBySteps<One, kMemory>(pairs);
  }
  if constexpr (kStream) {
    return nullptr;
  } else {
    return &RunWalk<PaddedSlice<Dtype, kIn, kOut>, kMemory>;
  }
}

// A rotation in which all heads of a token share a row of cosines and sines.
template <class Dtype, PairingIndex kIn, PairingIndex kOut>
class Rotation {
 public:
  using Isa = typename Dtype::Isa;
  using Storage = typename Dtype::Storage;
  using Real = typename Dtype::Real;

  explicit Rotation(const RotateJob& job)
      : job_(job), in_place_(job.src == job.dst), memory_(job.memory) {
    if (in_place_ && memory_ == Memory::kStreamed) memory_ = Memory::kCold;
    if (memory_ == Memory::kStreamed) {
      if (HasWholeLines()) {
        run_ = ChooseWalk<Dtype, kIn, kOut, Memory::kStreamed>(job);
      }
      if (run_ != nullptr) return;
      gathers_ = HasNoGaps();
      memory_ = Memory::kCold;
    }
    run_ = memory_ == Memory::kCached
               ? ChooseWalk<Dtype, kIn, kOut, Memory::kCached>(job)
               : ChooseWalk<Dtype, kIn, kOut, Memory::kCold>(job);
  }

  void Run() const {
    LineStream<Isa> stream;
    Walk<Dtype> walk = {};
    walk.src = static_cast<const Storage*>(job_.src);
    walk.dst = static_cast<Storage*>(job_.dst);
    walk.cosines = static_cast<const Real*>(job_.table);
    walk.sines = walk.cosines + job_.table_sine_offset;
    walk.row_stride = job_.table_token_stride;
    walk.token_stride = job_.token_stride;
    walk.place_stride = job_.heads > 1 ? job_.head_stride : job_.token_stride;
    walk.turns = 1;
    walk.pairs = job_.pairs;
    walk.pass = job_.pass_offset * kSize;
    walk.pass_bytes = PassBytes();
    if (gathers_) walk.stream = &stream;
    if (IsHeadMajor()) {
      WalkHeads(walk);
    } else {
      WalkTokens(walk);
    }
  }

 private:
  static constexpr auto kSize = static_cast<std::ptrdiff_t>(sizeof(Storage));

  bool IsHeadMajor() const {
    return job_.heads > 1 && job_.head_stride > job_.token_stride;
  }
  std::size_t PassBytes() const {
    return in_place_ ? 0 : job_.pass_width * sizeof(Storage);
  }

  // True if all stores begin and end at boundaries of cache lines.
  bool HasWholeLines() const {
    const auto whole = [](std::ptrdiff_t elements) {
      return elements * kSize % static_cast<std::ptrdiff_t>(kLine) == 0;
    };
    return reinterpret_cast<std::uintptr_t>(job_.dst) % kLine == 0 &&
           whole(static_cast<std::ptrdiff_t>(job_.pairs)) &&
           whole(job_.token_stride) && whole(job_.head_stride) &&
           (PassBytes() == 0 ||
            (PassBytes() % kLine == 0 && whole(job_.pass_offset)));
  }

  // True if slices, with the channels that pass through, are adjacent, and
  // small enough to be gathered.
  bool HasNoGaps() const {
    const auto pass = static_cast<std::ptrdiff_t>(job_.pass_width);
    const auto rotated = static_cast<std::ptrdiff_t>(2 * job_.pairs);
    const std::ptrdiff_t width = rotated + pass;
    const auto heads = static_cast<std::ptrdiff_t>(job_.heads);
    const bool follow = IsHeadMajor()
                            ? job_.token_stride == width
                            : job_.token_stride == heads * width &&
                                  (heads == 1 || job_.head_stride == width);
    return follow &&
           (pass == 0 || job_.pass_offset == rotated ||
            job_.pass_offset == -pass) &&
           static_cast<std::size_t>(width * kSize) <=
               LineStream<Isa>::kMaxBytes;
  }

  // Returns the distance in bytes for prefetches if the tensor is in the
  // second-level cache; 0 means no prefetches. The prefetches fetch lines of
  // dst, so that these lines are in the first-level cache before the stores.
  // This makes float32 and float64 a tenth faster, and types of 16 bits no
  // faster; prefetching src instead is slower (Xeon, AVX-512).
  std::ptrdiff_t AheadInCache() const {
    constexpr std::ptrdiff_t kAhead = 2048;
    constexpr std::ptrdiff_t kFirstCache = 32 * 1024;
    const auto bytes = static_cast<std::ptrdiff_t>(
        job_.tokens * job_.heads * 2 * job_.pairs * sizeof(Storage));
    if (in_place_ || !kIsNative<Dtype> || !job_.by_pages ||
        bytes <= kFirstCache) {
      return 0;
    }
    return static_cast<std::ptrdiff_t>(
        reinterpret_cast<std::uintptr_t>(job_.dst) -
        reinterpret_cast<std::uintptr_t>(job_.src) + kAhead);
  }

  void WalkTokens(Walk<Dtype> walk) const {
    const std::ptrdiff_t slice = walk.place_stride;
    const std::size_t bytes = static_cast<std::size_t>(slice) * sizeof(Storage);
    walk.tokens = job_.tokens;
    walk.places = job_.heads;
    walk.ahead =
        memory_ == Memory::kCached ? AheadInCache() : std::ptrdiff_t{kPage};
    if (gathers_) {  // gathers piece by piece
      walk.places = Divisor(job_.heads, LineStream<Isa>::kPiece / bytes);
      walk.turns = job_.heads / walk.places;
    } else if (memory_ != Memory::kCached && job_.by_pages) {
      return WalkPages(walk);
    }
    walk.turn_stride = static_cast<std::ptrdiff_t>(walk.places) * slice;
    run_(walk);
  }

  // Processes four memory pages of each token at the same time, for all tokens;
  // then the next four pages of each token. Prefetches the pages that follow.
  void WalkPages(Walk<Dtype> walk) const {
    constexpr std::size_t kPages = 4 * kPage;
    const std::ptrdiff_t slice = walk.place_stride;
    const std::size_t bytes = static_cast<std::size_t>(slice) * sizeof(Storage);
    const std::size_t token = job_.heads * bytes;
    const std::size_t groups = Divisor(job_.heads, token / kPages);
    const std::size_t heads = job_.heads / groups;
    walk.places = Divisor(heads, heads * bytes / kPage);
    walk.turns = heads / walk.places;
    walk.turn_stride = slice;
    walk.place_stride = static_cast<std::ptrdiff_t>(walk.turns) * slice;
    if (walk.places > 1) {
      walk.ahead = static_cast<std::ptrdiff_t>(
                       std::max(kPages / token, std::size_t{1})) *
                   job_.token_stride * kSize;
    }
    for (std::size_t i = 0; i < groups; ++i) {
      run_(walk);
      walk.src += static_cast<std::ptrdiff_t>(heads) * slice;
      walk.dst += static_cast<std::ptrdiff_t>(heads) * slice;
    }
  }

  // Returns the largest divisor of n up to `most`, but at least 1.
  static std::size_t Divisor(std::size_t n, std::size_t most) {
    std::size_t divisor = std::clamp<std::size_t>(most, 1, n);
    while (n % divisor != 0) --divisor;
    return divisor;
  }

  // Processes several heads at the same time: two heads are fastest on Zen 5,
  // four heads on a Xeon (64 MB, AVX-512).
  void WalkHeads(Walk<Dtype> walk) const {
    const std::size_t slice =
        static_cast<std::size_t>(job_.token_stride) * sizeof(Storage);
    const bool cached = memory_ == Memory::kCached;
    std::size_t lines = cached || job_.by_pages ? 4 : 2;
    std::size_t page =
        cached ? job_.tokens : std::max<std::size_t>(1, kPage / slice);
    if (gathers_) {
      // This many tokens fill whole cache lines if a token has an even number
      // of bytes.
      constexpr std::size_t kTokens = 32;
      lines = 1;
      walk.place_stride = job_.token_stride;
      page = std::max(2 * page / kTokens, std::size_t{1}) * kTokens;
    }
    const auto offset = [&](std::size_t token, std::size_t head) {
      return static_cast<std::ptrdiff_t>(token) * job_.token_stride +
             static_cast<std::ptrdiff_t>(head) * job_.head_stride;
    };
    const Walk<Dtype> all = walk;
    for (std::size_t t = 0; t < job_.tokens; t += page) {
      walk.tokens = std::min(page, job_.tokens - t);
      const std::ptrdiff_t row =
          static_cast<std::ptrdiff_t>(t) * job_.table_token_stride;
      walk.cosines = all.cosines + row;
      walk.sines = all.sines + row;
      for (std::size_t h = 0; h < job_.heads; h += lines) {
        const std::ptrdiff_t here = offset(t, h);
        const std::ptrdiff_t next =
            h + lines < job_.heads ? offset(t, h + lines) : offset(t + page, 0);
        walk.src = all.src + here;
        walk.dst = all.dst + here;
        walk.places = std::min(lines, job_.heads - h);
        walk.turn_stride =
            static_cast<std::ptrdiff_t>(walk.places) * walk.place_stride;
        walk.ahead = cached ? AheadInCache() : (next - here) * kSize;
        run_(walk);
      }
    }
  }

  // The job is not copied, because loads from a new copy would be slow. A load
  // of bytes that narrower stores have just written waits for the store buffer,
  // which is full of streamed bytes.
  const RotateJob& job_;
  const bool in_place_;
  Memory memory_;         // kStreamed: stores whole lines from registers
  bool gathers_ = false;  // writes through a LineStream
  RunWalks<Dtype> run_ = nullptr;
};

template <class Dtype, PairingIndex kIn, PairingIndex kOut>
void Rotate(const RotateJob& job) {
  if (job.tokens == 0 || job.heads == 0 || job.pairs == 0) return;
  if (job.table_head_stride == 0) {
    return Rotation<Dtype, kIn, kOut>(job).Run();
  }
  // If each head has its own row, the heads are rotated like tokens that have
  // one head.
  RotateJob token = job;
  token.tokens = job.heads;
  token.heads = 1;
  token.token_stride = job.head_stride;
  token.table_token_stride = job.table_head_stride;
  for (std::size_t t = 0; t < job.tokens; ++t) {
    const auto i = static_cast<std::ptrdiff_t>(t);
    const std::ptrdiff_t offset = i * job.token_stride;
    token.src = static_cast<const typename Dtype::Storage*>(job.src) + offset;
    token.dst = static_cast<typename Dtype::Storage*>(job.dst) + offset;
    token.table = static_cast<const typename Dtype::Real*>(job.table) +
                  i * job.table_token_stride;
    Rotation<Dtype, kIn, kOut>(token).Run();
  }
}

}  // namespace
}  // namespace posenc::simd
