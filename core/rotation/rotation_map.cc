#include "core/rotation/rotation_map.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "core/rotation/quantised_rows.h"
#include "core/simd/dispatch.h"

// Evaluating a token's cosines and sines costs more than rotating one head with
// them, so they must be evaluated once and used for all heads. The method
// depends on the order of memory. This is the order for 2 sequences of tokens
// t0 t1 ... and heads h0 h1 ...:
//
//   BSHD, THD   t0h0 t0h1 .. t1h0 t1h1 ..           the heads of a token are
//               t0h0 ..        (sequence 1)         adjacent
//   SBHD        t0h0 t0h1 ..   t0h0 t0h1 ..  t1h0   the same, but sequences
//               seq. 0         seq. 1               alternate at every token
//   BHSD        t0h0 t1h0 t2h0 ..  t0h1 t1h1 t2h1   all tokens come once for
//                                                   each head
//
// Each worker has a table for a block of neighbouring tokens, and evaluates the
// next block when it reaches a token outside this block. In BHSD a worker that
// has all heads of a sequence rotates the tokens of a block in all heads, then
// the tokens of the next block. Workers that have fewer heads share a table of
// all cosines and sines for the whole call. If this table exceeds
// kMaxBytesOfAll, these workers evaluate blocks instead, once for each head.
//
// In SBHD, if sequences have equal positions, their heads are treated as the
// heads of one sequence. If sequences have different positions, a block is one
// token, because the next token belongs to another sequence.
namespace posenc::core {
namespace {

// A block's cosines and sines stay in the first-level cache (at least 32 KiB on
// every supported CPU) while the heads use them. In BHSD the cosines and sines
// stay in the second-level cache, because all tokens come once for each head.
constexpr std::size_t kBlockBytes = 32 * 1024;
constexpr std::size_t kHeadMajorBlockBytes = 128 * 1024;

// A tensor of at least this size is not in the second-level cache when its
// rotation begins, so prefetching saves time. In a server this is true for all
// tensors of this size. Prefetching costs a few percent if the tensor is in the
// cache.
constexpr std::size_t kColdBytes = 1 << 20;

// An output of at least this size leaves the third-level cache before it is
// read, so non-temporal stores save time. For a smaller output that is read
// next, non-temporal stores would cost time. The reported size of the cache is
// not used, because virtual machines report far more than their share
// (docs/measurements/kernels.md).
constexpr std::size_t kStreamedBytes = 24 << 20;

// int8 heads are converted in a buffer of 16 KiB, so that the buffer stays in
// the first-level cache. The buffer is larger only if one head needs more.
constexpr std::int64_t kMostFloats = 4096;

// Upper bounds on the size of all tokens' cosines and sines, in float32 and in
// float64. The bounds are a fraction of a third-level cache, because other
// calls use the cache, too.
constexpr std::size_t kMaxBytesOfAll[] = {8 << 20, 16 << 20};

// The number of channels that are scaled at a time, on the stack.
constexpr std::size_t kScaledBlock = 256;

// Sets dst[i] to src[i] * scale for the rotation's pass_width channels, in
// float32 (float64 for float64), rounded once. dst is equal to src, or the two
// do not overlap.
void ScaleChannels(const HeadRotation& rotation, const std::byte* src,
                   std::byte* dst, double scale) {
  const auto n = static_cast<std::size_t>(rotation.pass_width);
  if (rotation.dtype_index == simd::kF64) {
    for (std::size_t i = 0; i < n; ++i) {
      double x;
      std::memcpy(&x, src + i * sizeof(x), sizeof(x));
      x *= scale;
      std::memcpy(dst + i * sizeof(x), &x, sizeof(x));
    }
    return;
  }
  const auto factor = static_cast<float>(scale);
  const simd::KernelTable& kernels = simd::ActiveKernels();
  float wide[kScaledBlock];
  for (std::size_t i = 0; i < n; i += kScaledBlock) {
    const std::size_t count = std::min(kScaledBlock, n - i);
    const std::size_t offset = i * rotation.element;
    kernels.widen[rotation.dtype_index](src + offset, wide, count);
    for (std::size_t j = 0; j < count; ++j) wide[j] *= factor;
    kernels.narrow[rotation.dtype_index](wide, dst + offset, count);
  }
}

}  // namespace

RotationMap::RotationMap(const HeadRotation& rotation, Layout layout,
                         const HeadLayout& extents, bool shared,
                         std::unique_ptr<const CosSinSource> source)
    : RowMap(extents.batch * extents.tokens * extents.heads, rotation.head,
             rotation.head, rotation.same_pairing),
      rotation_(rotation),
      shared_(shared),
      source_(std::move(source)),
      pairs_(rotation_.segments.empty() ? 0 : source_->pairs()),
      frequency_sets_(source_->heads()),
      uniform_(source_->uniform()),
      scaled_(source_->scaled()),
      batch_(extents.batch),
      tokens_(extents.tokens),
      heads_(extents.heads) {
  // A tensor without rows may have extents too large for any allocation.
  if (rows() == 0) return;
  if (!rotation_.quantised.has_value()) {
    const std::size_t bytes = static_cast<std::size_t>(rows()) * in_bytes();
    memory_ = bytes < kColdBytes       ? simd::Memory::kCached
              : bytes < kStreamedBytes ? simd::Memory::kCold
                                       : simd::Memory::kStreamed;
  }
  if (layout == Layout::kSbhd && batch_ > 1) {
    if (shared_ && frequency_sets_ == 1) {
      heads_ *= batch_;
      batch_ = 1;
    } else {
      alternates_ = true;
    }
  }
  head_major_ = layout == Layout::kBhsd && heads_ > 1;
  has_all_ = head_major_ && !uniform_ &&
             static_cast<std::size_t>(rows_of_all()) * table_bytes() <=
                 kMaxBytesOfAll[wide() ? 1 : 0];
}

const CosSinTable& RotationMap::All() const {
  std::call_once(all_once_, [this] {
    const std::int64_t sequences = shared_ ? 1 : batch_;
    all_ =
        std::make_unique<CosSinTable>(wide(), values(), rows_of_all(), scaled_);
    const std::unique_ptr<CosSinSource> source = source_->Clone();
    for (std::int64_t b = 0; b < sequences; ++b) {
      all_->Fill(source.get(), b, 0, tokens_, b * tokens_);
    }
  });
  return *all_;
}

class RotationMap::RotationWorker final : public RowMap::Worker,
                                          public TokenWorker {
 public:
  RotationWorker(const RotationMap& map, std::int64_t first, std::int64_t rows)
      : map_(map) {
    if (map.has_all_ && !HasWholeSequences(first, rows)) {
      all_ = &map.All();
      return;
    }
    source_ = map.source_->Clone();
    if (!map.uniform_ && !map.alternates_) {
      const std::size_t block =
          map.head_major_ ? kHeadMajorBlockBytes : kBlockBytes;
      block_tokens_ = std::clamp<std::int64_t>(
          static_cast<std::int64_t>(
              block / std::max<std::size_t>(1, map.table_bytes())),
          1, map.tokens_);
    }
    block_ = std::make_unique<CosSinTable>(map.wide(), map.values(),
                                           block_tokens_, map.scaled_);
  }

  // A tile may begin and end inside a token, or inside a head's tokens.
  void Run(std::int64_t first, std::int64_t rows, const void* in,
           void* out) override {
    const auto* src = static_cast<const std::byte*>(in);
    auto* dst = static_cast<std::byte*>(out);
    while (rows > 0) {
      const std::int64_t done = map_.head_major_
                                    ? RunHeads(first, rows, src, dst)
                                    : RunTokens(first, rows, src, dst);
      first += done;
      rows -= done;
      src += static_cast<std::size_t>(done) * map_.in_bytes();
      dst += static_cast<std::size_t>(done) * map_.in_bytes();
    }
    // Other threads may read these rows as soon as Run() returns.
    if (map_.memory_ == simd::Memory::kStreamed && in != out) {
      simd::ActiveKernels().end_streams();
    }
  }

  void Run(std::int64_t sequence, std::int64_t token, std::int64_t n,
           const Heads& heads, const std::byte* src, std::byte* dst) override {
    while (n > 0) {
      const Rows table = RowsOf(sequence, token, n);
      Rotate(table, heads, src, dst);
      const std::size_t bytes =
          static_cast<std::size_t>(table.tokens) * heads.token_bytes;
      token += table.tokens;
      n -= table.tokens;
      src += bytes;
      dst += bytes;
    }
  }

 private:
  // The cosines and sines of some neighbouring tokens.
  struct Rows {
    const CosSinTable* table;
    std::int64_t first;  // row of the table
    std::int64_t tokens;
  };

  // Returns true if these rows are whole sequences with one set of frequencies.
  // The worker of these rows then evaluates blocks of tokens, because no other
  // worker needs the same values, and a table of all tokens would not stay in
  // the second-level cache.
  bool HasWholeSequences(std::int64_t first, std::int64_t rows) const {
    const std::int64_t sequence = map_.heads_ * map_.tokens_;
    return first % sequence == 0 && rows % sequence == 0 &&
           map_.frequency_sets_ == 1;
  }

  // Returns the table's rows for the tokens of sequence b that start at t: at
  // most n rows.
  Rows RowsOf(std::int64_t b, std::int64_t t, std::int64_t n) {
    const std::int64_t sequence = map_.shared_ ? 0 : b;
    if (all_ != nullptr) return {all_, sequence * map_.tokens_ + t, n};
    if (map_.uniform_) {
      if (block_sequence_ < 0) Evaluate(0, 0, 1);
      return {block_.get(), 0, n};
    }
    if (sequence != block_sequence_ || t < block_start_ || t >= block_end_) {
      Evaluate(sequence, t, std::min(n, block_tokens_));
    }
    return {block_.get(), t - block_start_, std::min(n, block_end_ - t)};
  }

  void Evaluate(std::int64_t sequence, std::int64_t t, std::int64_t n) {
    block_->Fill(source_.get(), sequence, t, n, 0);
    block_sequence_ = sequence;
    block_start_ = t;
    block_end_ = t + n;
  }

  // Rotates at most `rows` rows from `first` on: whole tokens, or a part of one
  // token. Returns the number of rotated rows.
  std::int64_t RunTokens(std::int64_t first, std::int64_t rows,
                         const std::byte* src, std::byte* dst) {
    const std::int64_t token = first / map_.heads_, h = first % map_.heads_;
    const bool whole = h == 0 && rows >= map_.heads_;
    const std::int64_t count =
        whole ? map_.heads_ : std::min(rows, map_.heads_ - h);
    const std::int64_t b =
        map_.alternates_ ? token % map_.batch_ : token / map_.tokens_;
    const std::int64_t t =
        map_.alternates_ ? token / map_.batch_ : token % map_.tokens_;
    const std::int64_t most =
        whole && !map_.alternates_
            ? std::min(rows / map_.heads_, map_.tokens_ - t)
            : 1;
    const std::size_t bytes = map_.in_bytes();
    const Rows table = RowsOf(b, t, most);
    Rotate(table,
           {h, count, bytes, static_cast<std::size_t>(map_.heads_) * bytes},
           src, dst);
    return table.tokens * count;
  }

  // Does the work of RunTokens for tensors in which a head's tokens are
  // adjacent. Rotates whole heads, or a part of one head.
  std::int64_t RunHeads(std::int64_t first, std::int64_t rows,
                        const std::byte* src, std::byte* dst) {
    const std::int64_t tokens = map_.tokens_;
    const std::int64_t t = first % tokens, h = first / tokens % map_.heads_;
    const std::int64_t b = first / tokens / map_.heads_;
    const bool whole = t == 0 && rows >= tokens && map_.frequency_sets_ == 1;
    const std::int64_t count =
        whole ? std::min(rows / tokens, map_.heads_ - h) : 1;
    const std::int64_t n = std::min(rows, tokens - t);
    const std::size_t bytes = map_.in_bytes();
    const Heads heads = {h, count, static_cast<std::size_t>(tokens) * bytes,
                         bytes};
    Run(b, t, n, heads, src, dst);
    return count * n;
  }

  void Rotate(const Rows& rows, const Heads& heads, const std::byte* src,
              std::byte* dst) {
    const HeadRotation& rotation = map_.rotation_;
    if (rotation.quantised.has_value()) {
      RotateQuantised(*rotation.quantised, rows, heads, src, dst);
      return;
    }
    RotateSegments(rows, heads, src, dst);
    if (rotation.pass_width > 0 &&
        (map_.scaled_ || rotation.segments.empty())) {
      PassChannels(rows, heads, src, dst);
    }
  }

  // Rotates int8 heads: as many tokens and heads at a time as the buffer holds.
  void RotateQuantised(const QuantisedSpan& span, const Rows& rows,
                       const Heads& heads, const std::byte* src,
                       std::byte* dst) {
    const auto channels = static_cast<std::int64_t>(span.channels);
    const std::int64_t most = std::max<std::int64_t>(
        1, kMostFloats / std::max<std::int64_t>(1, channels));
    const std::int64_t most_heads = std::min(most, heads.count);
    const std::int64_t most_tokens = most / most_heads;
    for (std::int64_t t = 0; t < rows.tokens; t += most_tokens) {
      const Rows some_rows = {rows.table,
                              map_.uniform_ ? rows.first : rows.first + t,
                              std::min(most_tokens, rows.tokens - t)};
      for (std::int64_t h = 0; h < heads.count; h += most_heads) {
        const Heads some_heads = {heads.first + h,
                                  std::min(most_heads, heads.count - h),
                                  heads.bytes, heads.token_bytes};
        const std::size_t offset =
            static_cast<std::size_t>(t) * heads.token_bytes +
            static_cast<std::size_t>(h) * heads.bytes;
        RotateInBuffer(span, some_rows, some_heads, src + offset, dst + offset);
      }
    }
  }

  // Dequantises the spans of heads into a buffer, rotates them there, and
  // quantises them again.
  void RotateInBuffer(const QuantisedSpan& span, const Rows& rows,
                      const Heads& heads, const std::byte* src,
                      std::byte* dst) {
    const HeadRotation& rotation = map_.rotation_;
    const std::size_t width = span.channels * sizeof(float);
    const auto count = static_cast<std::size_t>(rows.tokens * heads.count);
    floats_.resize(count * span.channels);
    float* next = floats_.data();
    ForEachHead(rows, heads, [&](std::int64_t, std::size_t offset) {
      Dequantise(span.format, src + offset + span.first_byte, span.blocks,
                 next);
      next += span.channels;
    });
    const auto* const in = reinterpret_cast<const std::byte*>(floats_.data());
    auto* out = reinterpret_cast<std::byte*>(floats_.data());
    if (!rotation.same_pairing) {
      rotated_ = floats_;  // with the channels that pass through
      out = reinterpret_cast<std::byte*>(rotated_.data());
    }
    RotateSegments(rows,
                   {heads.first, heads.count, width,
                    width * static_cast<std::size_t>(heads.count)},
                   in, out);
    const float* rotated =
        rotation.same_pairing ? floats_.data() : rotated_.data();
    const bool passes =
        span.blocks * BlockOf(span.format).bytes < rotation.head;
    ForEachHead(rows, heads, [&](std::int64_t, std::size_t offset) {
      if (passes && dst != src) {
        std::memcpy(dst + offset, src + offset, rotation.head);
      }
      Quantise(span.format, rotated, span.blocks,
               dst + offset + span.first_byte);
      rotated += span.channels;
    });
  }

  // Calls f(token, offset in bytes) for each head of each token.
  template <typename F>
  static void ForEachHead(const Rows& rows, const Heads& heads, F f) {
    for (std::int64_t t = 0; t < rows.tokens; ++t) {
      for (std::int64_t h = 0; h < heads.count; ++h) {
        f(t, static_cast<std::size_t>(t) * heads.token_bytes +
                 static_cast<std::size_t>(h) * heads.bytes);
      }
    }
  }

  void RotateSegments(const Rows& rows, const Heads& heads,
                      const std::byte* src, std::byte* dst) const {
    const HeadRotation& rotation = map_.rotation_;
    const auto pairs = static_cast<std::ptrdiff_t>(map_.pairs_);
    const bool own_sets = map_.frequency_sets_ > 1;
    const std::size_t value = map_.wide() ? sizeof(double) : sizeof(float);
    const std::size_t own_set =
        own_sets ? static_cast<std::size_t>(heads.first) * 2 * map_.pairs_ : 0;
    simd::RotateJob job = {};
    job.tokens = static_cast<std::size_t>(rows.tokens);
    job.heads = static_cast<std::size_t>(heads.count);
    job.token_stride =
        static_cast<std::ptrdiff_t>(heads.token_bytes / rotation.element);
    job.head_stride =
        static_cast<std::ptrdiff_t>(heads.bytes / rotation.element);
    job.table_token_stride =
        map_.uniform_ ? 0 : static_cast<std::ptrdiff_t>(map_.values());
    job.table_head_stride = own_sets ? 2 * pairs : 0;
    job.table_sine_offset = pairs;
    job.memory = map_.memory_;
    job.by_pages = simd::WalksPagesAtOnce();
    bool passed = map_.scaled_ || rotation.pass_width == 0;
    for (const Segment& segment : rotation.segments) {
      job.src = src + segment.channel * rotation.element;
      job.dst = dst + segment.channel * rotation.element;
      job.pairs = static_cast<std::size_t>(segment.pairs);
      job.table =
          rows.table->At(rows.first) + (own_set + segment.first_pair) * value;
      job.pass_offset = rotation.pass_channel - segment.channel;
      job.pass_width =
          passed ? 0 : static_cast<std::size_t>(rotation.pass_width);
      rotation.rotate(job);
      passed = true;
    }
  }

  // Copies or scales the channels that the kernel does not copy.
  void PassChannels(const Rows& rows, const Heads& heads, const std::byte* src,
                    std::byte* dst) const {
    const HeadRotation& rotation = map_.rotation_;
    const std::size_t pass = rotation.pass_channel * rotation.element;
    ForEachHead(rows, heads, [&](std::int64_t t, std::size_t offset) {
      const double scale = map_.scaled_ ? rows.table->Scale(rows.first + t) : 1;
      // A factor of 1 must not change any bit, but a product would make a
      // signalling NaN quiet.
      if (scale != 1) {
        ScaleChannels(rotation, src + offset + pass, dst + offset + pass,
                      scale);
      } else if (dst != src) {
        std::memcpy(dst + offset + pass, src + offset + pass,
                    rotation.pass_width * rotation.element);
      }
    });
  }

  const RotationMap& map_;
  const CosSinTable* all_ = nullptr;  // the map's table; null: uses block_
  std::unique_ptr<CosSinSource> source_;
  std::int64_t block_tokens_ = 1;
  std::unique_ptr<CosSinTable> block_;
  std::vector<float> floats_, rotated_;  // buffers for int8 heads
  std::int64_t block_sequence_ = -1, block_start_ = 0, block_end_ = 0;
};

std::unique_ptr<RowMap::Worker> RotationMap::StartWorker(
    std::int64_t first, std::int64_t rows) const {
  return std::make_unique<RotationWorker>(*this, first, rows);
}

std::unique_ptr<RotationMap::TokenWorker> RotationMap::StartTokens() const {
  return std::make_unique<RotationWorker>(*this, 0, rows());
}

}  // namespace posenc::core
