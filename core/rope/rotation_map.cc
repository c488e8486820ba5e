#include "core/rope/rotation_map.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "core/rope/recent_rows.h"
#include "core/rope/scale_channels.h"
#include "core/simd/dispatch.h"
#include "core/simd/memory_walk.h"

// Evaluating a token's cosines and sines costs more than rotating one head by
// them, so they must be evaluated once and used for all heads. Whether that
// comes by itself depends on the order of memory. For 2 sequences of tokens
// t0 t1 ... and heads h0 h1 ...:
//
//   BSHD, THD   t0h0 t0h1 .. t1h0 t1h1 ..           the heads of a token follow
//               t0h0 ..        (sequence 1)         each other
//   SBHD        t0h0 t0h1 ..   t0h0 t0h1 ..  t1h0   so do they here; sequences
//               seq. 0         seq. 1               alternate at every token
//   BHSD        t0h0 t1h0 t2h0 ..  t0h1 t1h1 t2h1   all tokens pass by once for
//                                                   each head
//
// In BHSD (of more than one head) every token comes back after all others have
// passed. A worker that has all heads of a sequence takes neighbouring tokens,
// a block of them, through all heads before the next block comes. Workers that
// have fewer share a table of all cosines and sines, which is kept for the
// whole call, if kMaxBytesOfAll hold it. They share it, too, if one row serves
// every token. Otherwise each worker keeps a table of its own for a block of
// neighbouring tokens and evaluates the next block when a token outside comes:
// once for every block in BSHD, and once for every block and head in a BHSD
// tensor too long for one table. In SBHD, if sequences have positions of their
// own, a block is one token: the next row is another sequence's, for which a
// longer block would be thrown away at every token.
//
// The table of a small tensor may be one that RecentRows has kept of a call
// before; if it is not there, it is evaluated beforehand and kept.
namespace posenc::core {
namespace {

// A block's cosines and sines stay in the first-level cache (32 KiB and more on
// every CPU served) while the heads that use them pass by.
constexpr std::size_t kBlockBytes = 32 * 1024;

constexpr std::size_t kCacheLine = 64;

// If the bytes of a head are no power of two, blocks have a multiple of so many
// tokens. They are then whole groups of the pages that kernels walk at once
// (heads of 80 channels need a multiple of 3). A rest would be walked page by
// page, which is slower.
constexpr std::int64_t kWholeGroups = 12;

// A tensor of that many bytes has left the second-level cache when its rotation
// begins, so that fetching ahead pays: in a server all of them have, sent by
// others. Where it has not, fetching costs 0 .. 7 % (Zen 5, 8 MB; bfloat16 out
// of place gains 40 % even there).
constexpr std::size_t kColdBytes = 1 << 20;

// An output of that many bytes has left the third-level cache before anybody
// reads it, so that writing it past the caches pays. Measured on Zen 5, this is
// 1.2 times as fast at 64 MB, and 1.1 times at 16 MB if nothing else is in the
// cache, but 0.9 times there if the output is read next. Never taken from what
// the system says of its cache: on one machine that is 480 MB, of which 16 to
// 32 are of use.
constexpr std::size_t kStreamedBytes = 24 << 20;

// No cache is taken to hold a tensor of that many bytes. A third-level cache
// held one of 64 MB that was rotated again and again, and not one of 256 MB
// (Xeon).
constexpr std::size_t kFarBytes = 128 << 20;

// Upper bound on what the cosines and sines of all tokens take, of float32 and
// of float64: a fraction of a third-level cache, which other calls use, too.
constexpr std::size_t kMaxBytesOfAll[] = {8 << 20, 16 << 20};

}  // namespace

RotationMap::RotationMap(const HeadRotation& rotation, Layout layout,
                         const HeadLayout& extents, bool shared,
                         std::unique_ptr<const CosSinSource> source)
    : RowMap(extents.batch * extents.tokens * extents.heads,
             static_cast<std::size_t>(extents.head_dim) * rotation.element,
             static_cast<std::size_t>(extents.head_dim) * rotation.element,
             rotation.same_pairing),
      rotation_(rotation),
      layout_(layout),
      batch_(extents.batch),
      tokens_(extents.tokens),
      heads_(extents.heads),
      shared_(shared),
      source_(std::move(source)) {
  pairs_ = rotation_.segments.empty() ? 0 : source_->pairs();
  frequency_sets_ = source_->heads();
  uniform_ = source_->uniform();
  scaled_ = source_->scaled();

  const std::size_t bytes = static_cast<std::size_t>(rows()) * in_bytes();
  memory_ = bytes < kColdBytes       ? simd::Memory::kCached
            : bytes < kStreamedBytes ? simd::Memory::kCold
            : bytes < kFarBytes      ? simd::Memory::kStreamed
                                     : simd::Memory::kFar;
  // A tensor without rows may have extents that no row could be allocated for.
  if (rows() == 0) return;
  tokens_come_back_ = layout_ == Layout::kBhsd && heads_ > 1;
  const bool wide = rotation_.dtype == Dtype::kFloat64;
  const std::int64_t rows_of_all =
      (shared_ ? 1 : batch_) * (uniform_ ? 1 : tokens_);
  const std::size_t all = static_cast<std::size_t>(rows_of_all) *
                          frequency_sets_ * 2 * pairs_ *
                          (wide ? sizeof(double) : sizeof(float));
  keeps_all_ = source_->keeps_rows() && memory_ == simd::Memory::kCached &&
               rows_of_all >= RecentRows::kFewestRows &&
               all <= RecentRows::kMaxCallBytes;
  has_all_ = keeps_all_ || ((tokens_come_back_ || uniform_) &&
                            all <= kMaxBytesOfAll[wide ? 1 : 0]);
  // At once, so that the keys of a call find what its queries have left.
  if (keeps_all_) MakeAll();
}

// std::call_once() makes a system call, which takes a small call 0.2 us.
const CosSinTable& RotationMap::All() const {
  if (!keeps_all_) std::call_once(all_once_, [this] { MakeAll(); });
  return *all_;
}

void RotationMap::MakeAll() const {
  const bool wide = rotation_.dtype == Dtype::kFloat64;
  const std::size_t values = frequency_sets_ * 2 * pairs_;  // of a token
  if (keeps_all_) all_ = source_->FindRows(wide);
  if (all_ != nullptr) return;
  const std::int64_t sequences = shared_ ? 1 : batch_;
  const std::int64_t tokens = uniform_ ? 1 : tokens_;
  auto all =
      std::make_shared<CosSinTable>(wide, values, sequences * tokens, scaled_);
  const std::unique_ptr<CosSinSource> own = source_->Clone();
  for (std::int64_t b = 0; b < sequences; ++b) {
    all->Fill(own.get(), b, 0, tokens, b * tokens);
  }
  all_ = std::move(all);
  if (keeps_all_) source_->KeepRows(wide, all_);
}

std::int64_t RotationMap::TokensOf(std::size_t bytes) const {
  const std::size_t token = frequency_sets_ * 2 * pairs_ * sizeof(float);
  return std::clamp<std::int64_t>(
      static_cast<std::int64_t>(bytes / std::max(token, kCacheLine)), 1,
      std::max<std::int64_t>(1, tokens_));
}

class RotationMap::RotationWorker final : public RowMap::Worker {
 public:
  RotationWorker(const RotationMap& map, std::int64_t first, std::int64_t rows)
      : map_(map),
        end_(first + rows),
        own_blocks_(map.has_all_ && HasWholeSequences(first, rows)) {
    if (map.has_all_ && !own_blocks_) return;
    source_ = map.source_->Clone();
    const bool wide = map.rotation_.dtype == Dtype::kFloat64;
    const std::size_t values = map.frequency_sets_ * 2 * map.pairs_;
    const bool sequences_alternate =
        map.layout_ == Layout::kSbhd && !map.shared_ && map.batch_ > 1;
    if (!sequences_alternate) {
      const std::int64_t heads =  // that pass by a block
          map.tokens_come_back_ ? rows / map.tokens_ : map.heads_;
      const bool comes_back = map.tokens_come_back_ && heads > 1;
      block_tokens_ =
          map.TokensOf(comes_back ? simd::HeadBlockBytes() : kBlockBytes);
      if (map.memory_ != simd::Memory::kCached) {
        const std::size_t token =
            static_cast<std::size_t>(heads) * map.in_bytes();
        if (!map.tokens_come_back_) {
          block_tokens_ = std::clamp<std::int64_t>(
              simd::ColdBlockBytes() / std::max<std::size_t>(token, 1), 1,
              block_tokens_);
          if (!std::has_single_bit(map.in_bytes()) &&
              block_tokens_ > kWholeGroups) {
            block_tokens_ -= block_tokens_ % kWholeGroups;
          }
        }
      }
    }
    block_ = std::make_unique<Block>(
        CosSinTable(wide, values, block_tokens_, map.scaled_));
  }

  // Takes as many rows at a time as one call of the kernel can: tokens of one
  // head in BHSD, whole tokens in BSHD and THD, heads of one token elsewhere.
  // A tile may begin and end inside a token.
  void Run(std::int64_t first, std::int64_t rows, const void* in,
           void* out) override {
    const auto* src = static_cast<const std::byte*>(in);
    auto* dst = static_cast<std::byte*>(out);
    const std::int64_t heads = map_.heads_, tokens = map_.tokens_;
    while (rows > 0) {
      std::int64_t done = 0;
      if (map_.layout_ == Layout::kBhsd) {
        const std::int64_t t = first % tokens;
        const std::int64_t h = first / tokens % heads;
        const std::int64_t b = first / tokens / heads;
        const std::int64_t whole =
            t == 0 ? std::min(rows / tokens, heads - h) : 0;
        if (whole > 1 && map_.frequency_sets_ == 1) {
          WholeHeads(b, h, whole, src, dst);
          done = whole * tokens;
        } else {
          done = std::min(rows, tokens - t);
          Tokens(b, t, done, h, {1, 1}, src, dst);
        }
      } else {
        const std::int64_t h = first % heads;
        const std::int64_t outer = first / heads;
        const bool batch_inside = map_.layout_ == Layout::kSbhd;
        const std::int64_t b =
            batch_inside ? outer % map_.batch_ : outer / tokens;
        const std::int64_t t =
            batch_inside ? outer / map_.batch_ : outer % tokens;
        if (h > 0 || rows < heads || batch_inside) {
          done = std::min(rows, heads - h);
          Tokens(b, t, 1, h, {1, done}, src, dst);
        } else {
          const std::int64_t whole = std::min(rows / heads, tokens - t);
          Tokens(b, t, whole, 0, {1, heads}, src, dst);
          done = whole * heads;
        }
      }
      first += done;
      rows -= done;
      src += static_cast<std::size_t>(done) * map_.in_bytes();
      dst += static_cast<std::size_t>(done) * map_.in_bytes();
    }
    // Other threads may read these rows as soon as this returns.
    if (simd::Streams(map_.memory_) && in != out) {
      simd::ActiveKernels().end_streams();
    }
  }

 private:
  // Heads that are rotated by the same rows of the table: either `heads` that
  // follow one another in each token, or `lines` whose tokens do.
  struct Heads {
    std::int64_t lines, heads;
  };

  // The cosines and sines of some neighbouring tokens.
  struct Block {
    explicit Block(CosSinTable rows) : table(std::move(rows)) {}

    bool Holds(std::int64_t s, std::int64_t t) const {
      return s == sequence && t >= start && t < end;
    }

    CosSinTable table;
    std::int64_t sequence = -1, start = 0, end = 0;  // none
  };

  // Whether a worker for these rows has all heads of sequences of BHSD, and no
  // part of another. It evaluates blocks of tokens then although the map could
  // have all cosines and sines, because nobody else needs the same: a table of
  // all, which does not stay in the second-level cache, would be written and
  // read for nothing. 64 MB out of place, one sequence, of the best copy, by
  // the table and by blocks: float16 0.80 and 0.87, bfloat16 0.81 and 0.88,
  // float32 0.92 and 0.94 (Xeon, AVX-512).
  bool HasWholeSequences(std::int64_t first, std::int64_t rows) const {
    const std::int64_t sequence = map_.heads_ * map_.tokens_;
    return map_.tokens_come_back_ && first % sequence == 0 &&
           rows % sequence == 0 && (!map_.shared_ || map_.batch_ == 1) &&
           map_.frequency_sets_ == 1 && !map_.keeps_all_ && !map_.uniform_;
  }

  const CosSinTable& All() {
    if (all_ == nullptr) all_ = &map_.All();
    return *all_;
  }
  std::int64_t RowOfAll(std::int64_t sequence, std::int64_t t) const {
    return map_.uniform_ ? sequence : sequence * map_.tokens_ + t;
  }

  // Rotates n heads of BHSD from h on, with all their tokens.
  void WholeHeads(std::int64_t b, std::int64_t h, std::int64_t n,
                  const std::byte* src, std::byte* dst) {
    const std::int64_t tokens = map_.tokens_;
    const std::int64_t sequence = map_.shared_ ? 0 : b;
    const std::int64_t lines = std::min<std::int64_t>(n, simd::HeadsAtOnce());
    // Once pieces of memory have cut a sequence, the table of all is there.
    const bool by_blocks =
        !map_.has_all_ || (own_blocks_ && n == map_.heads_ && all_ == nullptr);
    const std::int64_t most = map_.TokensOf(simd::HeadBlockBytes());
    for (std::int64_t t = 0, end = 0; t < tokens; t = end) {
      if (by_blocks) Evaluate(sequence, b, t);
      end = by_blocks ? block_->end : std::min(t + most, tokens);
      const CosSinTable& table = by_blocks ? block_->table : All();
      const std::int64_t at =
          by_blocks ? t - block_->start : RowOfAll(sequence, t);
      for (std::int64_t i = 0; i < n; i += lines) {
        const std::size_t offset =
            static_cast<std::size_t>(i * tokens + t) * map_.in_bytes();
        Rotate(table, at, end - t, h + i, {std::min(lines, n - i), 1},
               src + offset, dst + offset);
      }
    }
  }

  // Rotates heads from h on of each of n tokens from t on. In memory the tokens
  // follow one another with just these heads each.
  void Tokens(std::int64_t b, std::int64_t t, std::int64_t n, std::int64_t h,
              Heads heads, const std::byte* src, std::byte* dst) {
    const std::int64_t sequence = map_.shared_ ? 0 : b;
    if (map_.has_all_) {
      return Rotate(All(), RowOfAll(sequence, t), n, h, heads, src, dst);
    }
    while (n > 0) {
      Evaluate(sequence, b, t);
      const std::int64_t here = std::min(n, block_->end - t);
      Rotate(block_->table, t - block_->start, here, h, heads, src, dst);
      const std::size_t bytes =
          static_cast<std::size_t>(here * heads.heads) * map_.in_bytes();
      src += bytes;
      dst += bytes;
      t += here;
      n -= here;
    }
  }

  // Evaluates the block of token t, unless it is there.
  void Evaluate(std::int64_t sequence, std::int64_t b, std::int64_t t) {
    if (block_->Holds(sequence, t)) return;
    if (map_.tokens_come_back_) {
      // Blocks start at multiples of their length, so that a block that one
      // head has left is found again by the next.
      block_->start = t / block_tokens_ * block_tokens_;
      block_->end = std::min(block_->start + block_tokens_, map_.tokens_);
    } else {
      // No token is evaluated that this worker does not rotate.
      block_->start = t;
      block_->end = std::min(block_->start + block_tokens_, EndOf(b));
    }
    block_->sequence = sequence;
    block_->table.Fill(source_.get(), sequence, block_->start,
                       block_->end - block_->start, 0);
  }

  // The token of sequence b behind the last one that this worker has rows of.
  // Not for tokens that come back.
  std::int64_t EndOf(std::int64_t b) const {
    const bool batch_inside = map_.layout_ == Layout::kSbhd;
    const std::int64_t rows_of_token =
        map_.heads_ * (batch_inside ? map_.batch_ : 1);
    const std::int64_t before =
        batch_inside ? 0 : b * map_.tokens_ * map_.heads_;
    return std::min((end_ - before + rows_of_token - 1) / rows_of_token,
                    map_.tokens_);
  }

  // As Tokens(); the first token is number `at` of the table.
  void Rotate(const CosSinTable& table, std::int64_t at, std::int64_t n,
              std::int64_t h, Heads heads, const std::byte* src,
              std::byte* dst) const {
    const HeadRotation& rotation = map_.rotation_;
    const auto pairs = static_cast<std::ptrdiff_t>(map_.pairs_);
    const std::ptrdiff_t token_pitch =
        2 * pairs * static_cast<std::ptrdiff_t>(map_.frequency_sets_);
    const std::size_t value =
        rotation.dtype == Dtype::kFloat64 ? sizeof(double) : sizeof(float);
    const std::size_t own_set = map_.frequency_sets_ > 1 ? h * 2 * pairs : 0;
    simd::RotateJob job = {};
    job.lines = heads.lines;
    job.tokens = n;
    job.heads = heads.heads;
    job.src_stride = job.dst_stride =
        static_cast<std::ptrdiff_t>(map_.in_bytes() / rotation.element);
    job.src_line_stride = job.dst_line_stride = map_.tokens_ * job.src_stride;
    job.table_token_stride = map_.uniform_ ? 0 : token_pitch;
    job.table_head_stride = map_.frequency_sets_ > 1 ? 2 * pairs : 0;
    job.table_sine_offset = pairs;
    job.memory = map_.memory_;
    job.pages = simd::PagesAtOnce();
    job.fetch = simd::FetchesAhead(src == dst, rotation.element);
    bool passed = map_.scaled_ || rotation.pass_width == 0;
    for (const Segment& segment : rotation.segments) {
      job.src = src + segment.channel * rotation.element;
      job.dst = dst + segment.channel * rotation.element;
      job.pairs = segment.pairs;
      job.table = table.At(at) + (own_set + segment.first_pair) * value;
      job.pass_offset = rotation.pass_channel - segment.channel;
      job.pass_width = passed ? 0 : rotation.pass_width;
      rotation.rotate(job);
      passed = true;
    }
    if (rotation.pass_width > 0 &&
        (map_.scaled_ || rotation.segments.empty())) {
      PassChannels(table, at, n, heads, src, dst);
    }
  }

  // The channels that the kernel does not copy.
  void PassChannels(const CosSinTable& table, std::int64_t at, std::int64_t n,
                    Heads heads, const std::byte* src, std::byte* dst) const {
    const HeadRotation& rotation = map_.rotation_;
    const std::size_t pass = rotation.pass_channel * rotation.element;
    for (std::int64_t t = 0; t < n; ++t) {
      for (std::int64_t i = 0; i < heads.lines * heads.heads; ++i) {
        const std::int64_t row =
            heads.lines > 1 ? i * map_.tokens_ + t : t * heads.heads + i;
        const std::size_t offset = row * map_.in_bytes() + pass;
        // A factor of 1 must leave every bit as it is: a product would turn a
        // signalling NaN into a quiet one.
        if (map_.scaled_ && table.Scale(at + t) != 1) {
          ScaleChannels(rotation, src + offset, dst + offset,
                        table.Scale(at + t));
        } else if (dst != src) {
          std::memcpy(dst + offset, src + offset,
                      rotation.pass_width * rotation.element);
        }
      }
    }
  }

  const RotationMap& map_;
  const std::int64_t end_;  // behind the last row that this worker may get
  const bool own_blocks_;   // although the map has all cosines and sines
  const CosSinTable* all_ = nullptr;  // the map's, once it was asked for
  // Unset if the map has all cosines and sines, unless own_blocks_.
  std::unique_ptr<CosSinSource> source_;
  std::int64_t block_tokens_ = 1;
  std::unique_ptr<Block> block_;
};

std::unique_ptr<RowMap::Worker> RotationMap::StartWorker(
    std::int64_t first, std::int64_t rows) const {
  return std::make_unique<RotationWorker>(*this, first, rows);
}

}  // namespace posenc::core
