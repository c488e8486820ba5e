#include "core/rope/rotation_map.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <utility>

#include "core/simd/dispatch.h"

namespace posenc::core {
namespace {

// Rows of a block of tokens stay in the first-level cache (32 KiB and more on
// every CPU served) while the heads that use them pass by.
constexpr std::size_t kBlockBytes = 32 * 1024;
constexpr std::size_t kCacheLine = 64;

// A tensor of that many bytes has left the second-level cache when its rotation
// begins. A page ahead: the hardware's prefetchers stop at a page's end.
constexpr std::size_t kColdBytes = 1 << 20;
constexpr std::size_t kPrefetchBytes = 4096;

// Rows of all tokens are kept where that many bytes hold them: a part of a
// third-level cache.
constexpr std::size_t kKeptBytes = 8 << 20;

// dst[i] = src[i] * scale, in float32 (float64 for float64), rounded once.
void ScaleChannels(const HeadPlan& plan, const std::byte* src, std::byte* dst,
                   double scale) {
  const auto width = static_cast<std::size_t>(plan.pass_width);
  if (plan.dtype == Dtype::kFloat64) {
    for (std::size_t i = 0; i < width; ++i) {
      double x;
      std::memcpy(&x, src + i * sizeof(x), sizeof(x));
      x *= scale;
      std::memcpy(dst + i * sizeof(x), &x, sizeof(x));
    }
    return;
  }
  const simd::KernelTable& kernels = simd::ActiveKernels();
  const auto factor = static_cast<float>(scale);
  std::array<float, 256> wide;          // any number: a piece of a head
  std::array<std::uint16_t, 256> bits;  // aligned, as uint16_t must be
  for (std::size_t i = 0; i < width; i += wide.size()) {
    const std::size_t n = std::min(wide.size(), width - i);
    const std::byte* from = src + i * plan.element;
    std::byte* to = dst + i * plan.element;
    const bool half = plan.dtype == Dtype::kFloat16;
    if (plan.element == sizeof(float)) {
      std::memcpy(wide.data(), from, n * sizeof(float));
    } else {
      std::memcpy(bits.data(), from, n * sizeof(std::uint16_t));
      (half ? kernels.widen_f16 : kernels.widen_bf16)(bits.data(), wide.data(),
                                                      n);
    }
    for (std::size_t j = 0; j < n; ++j) wide[j] *= factor;
    if (plan.element == sizeof(float)) {
      std::memcpy(to, wide.data(), n * sizeof(float));
    } else {
      (half ? kernels.narrow_f16 : kernels.narrow_bf16)(wide.data(),
                                                        bits.data(), n);
      std::memcpy(to, bits.data(), n * sizeof(std::uint16_t));
    }
  }
}

}  // namespace

RotationMap::Table::Table(bool wide, std::size_t row, std::int64_t tokens,
                          bool scaled)
    : wide_(wide), row_bytes_(row * (wide ? sizeof(double) : sizeof(float))) {
  const std::size_t bytes = static_cast<std::size_t>(tokens) * row_bytes_;
  std::size_t space = bytes + kCacheLine;
  storage_ = std::make_unique_for_overwrite<std::byte[]>(space);
  void* aligned = storage_.get();
  data_ =
      static_cast<std::byte*>(std::align(kCacheLine, bytes, aligned, space));
  if (scaled) scales_.resize(tokens);
}

void RotationMap::Table::Fill(TokenRows* rows, std::int64_t b,
                              std::int64_t first, std::int64_t n) {
  for (std::int64_t t = 0; t < n; ++t) {
    std::byte* const row = data_ + static_cast<std::size_t>(t) * row_bytes_;
    if (row_bytes_ > 0 && wide_) {
      rows->Fill(b, first + t, reinterpret_cast<double*>(row));
    } else if (row_bytes_ > 0) {
      rows->Fill(b, first + t, reinterpret_cast<float*>(row));
    }
    if (!scales_.empty()) scales_[t] = rows->HeadScale(b, first + t);
  }
}

RotationMap::RotationMap(const HeadPlan& plan, Layout layout,
                         const Heads& shape, bool shared,
                         std::unique_ptr<const TokenRows> rows)
    : RowMap(shape.batch * shape.tokens * shape.heads,
             static_cast<std::size_t>(shape.head_dim) * plan.element,
             static_cast<std::size_t>(shape.head_dim) * plan.element,
             plan.same_pairing),
      plan_(plan),
      layout_(layout),
      batch_(shape.batch),
      tokens_(shape.tokens),
      heads_(shape.heads),
      shared_(shared),
      token_rows_(std::move(rows)) {
  pairs_ = plan_.segments.empty() ? 0 : token_rows_->pairs();
  row_sets_ = token_rows_->heads();
  uniform_ = token_rows_->uniform();
  scaled_ = token_rows_->scaled();

  if (static_cast<std::size_t>(this->rows()) * in_bytes() >= kColdBytes) {
    prefetch_ = kPrefetchBytes;
  }
  if (this->rows() == 0) return;  // its other extents may be of any size
  const bool wide = plan_.dtype == Dtype::kFloat64;
  const std::size_t row = row_sets_ * 2 * pairs_;
  const std::int64_t sequences = shared_ ? 1 : batch_;
  const std::int64_t tokens = uniform_ ? 1 : tokens_;
  const bool again = layout_ == Layout::kBhsd && heads_ > 1;
  if ((again || uniform_) &&
      static_cast<std::size_t>(sequences * tokens) * row * 4 <= kKeptBytes) {
    const std::unique_ptr<TokenRows> filler = token_rows_->Clone();
    for (std::int64_t b = 0; b < sequences; ++b) {
      all_.emplace_back(wide, row, tokens, scaled_);
      all_.back().Fill(filler.get(), b, 0, tokens);
    }
  }
}

class RotationMap::RotationTile final : public RowMap::Tile {
 public:
  explicit RotationTile(const RotationMap& map) : map_(map) {
    if (!map.all_.empty()) return;
    rows_ = map.token_rows_->Clone();
    const bool wide = map.plan_.dtype == Dtype::kFloat64;
    const std::size_t row = map.row_sets_ * 2 * map.pairs_;
    block_ = std::clamp<std::int64_t>(
        kBlockBytes / std::max<std::size_t>(row * sizeof(float), kCacheLine), 1,
        std::max<std::int64_t>(1, map.tokens_));
    table_.emplace(wide, row, block_, map.scaled_);
  }

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
        done = std::min(rows, tokens - t);
        Tokens(first / tokens / heads, t, done, h, 1, src, dst);
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
          Tokens(b, t, 1, h, done, src, dst);
        } else {
          const std::int64_t whole = std::min(rows / heads, tokens - t);
          Tokens(b, t, whole, 0, heads, src, dst);
          done = whole * heads;
        }
      }
      first += done;
      rows -= done;
      src += static_cast<std::size_t>(done) * map_.in_bytes();
      dst += static_cast<std::size_t>(done) * map_.in_bytes();
    }
  }

 private:
  // `heads` heads from h on of n tokens from t on; the tokens follow one
  // another with that many heads each.
  void Tokens(std::int64_t b, std::int64_t t, std::int64_t n, std::int64_t h,
              std::int64_t heads, const std::byte* src, std::byte* dst) {
    const std::int64_t sequence = map_.shared_ ? 0 : b;
    if (!map_.all_.empty()) {
      return Rotate(map_.all_[sequence], map_.uniform_ ? 0 : t, n, h, heads,
                    src, dst);
    }
    while (n > 0) {
      const std::int64_t start = t / block_ * block_;
      if (sequence != table_sequence_ || start != table_start_) {
        table_->Fill(rows_.get(), sequence, start,
                     std::min(block_, map_.tokens_ - start));
        table_sequence_ = sequence;
        table_start_ = start;
      }
      const std::int64_t here = std::min(n, start + block_ - t);
      Rotate(*table_, t - start, here, h, heads, src, dst);
      const std::size_t bytes =
          static_cast<std::size_t>(here * heads) * map_.in_bytes();
      src += bytes;
      dst += bytes;
      t += here;
      n -= here;
    }
  }

  // The row of the first token is `row` of the table.
  void Rotate(const Table& table, std::int64_t row, std::int64_t n,
              std::int64_t h, std::int64_t heads, const std::byte* src,
              std::byte* dst) const {
    const HeadPlan& plan = map_.plan_;
    const auto pairs = static_cast<std::ptrdiff_t>(map_.pairs_);
    const std::ptrdiff_t row_pitch =
        2 * pairs * static_cast<std::ptrdiff_t>(map_.row_sets_);
    const std::size_t value =
        plan.dtype == Dtype::kFloat64 ? sizeof(double) : sizeof(float);
    const std::size_t own_row = map_.row_sets_ > 1 ? h * 2 * pairs : 0;
    const auto head_dim =
        static_cast<std::ptrdiff_t>(map_.in_bytes() / plan.element);
    for (const Segment& segment : plan.segments) {
      simd::RotateJob job;
      job.src = src + segment.channel * plan.element;
      job.dst = dst + segment.channel * plan.element;
      job.tokens = n;
      job.heads = heads;
      job.pairs = segment.pairs;
      job.src_token_stride = job.dst_token_stride = heads * head_dim;
      job.src_head_stride = job.dst_head_stride = head_dim;
      job.table = table.Row(row) + (own_row + segment.first_pair) * value;
      job.table_token_stride = map_.uniform_ ? 0 : row_pitch;
      job.table_head_stride = map_.row_sets_ > 1 ? 2 * pairs : 0;
      job.table_sine_offset = pairs;
      // Not where wide elements go elsewhere: fetching the lines to be written
      // is what such a rotation waits for, and more fetches make it a tenth
      // slower; 16-bit elements gain a third, in place all do.
      job.prefetch = dst == src || plan.element == 2 ? map_.prefetch_ : 0;
      plan.rotate(job);
    }
    if (plan.pass_width == 0) return;
    const std::size_t pass = plan.pass_channel * plan.element;
    for (std::int64_t t = 0; t < n; ++t) {
      for (std::int64_t i = 0; i < heads; ++i) {
        const std::size_t at = (t * heads + i) * map_.in_bytes() + pass;
        // A factor of 1 must not touch bits either.
        if (map_.scaled_ && table.Scale(row + t) != 1) {
          ScaleChannels(plan, src + at, dst + at, table.Scale(row + t));
        } else if (dst != src) {
          std::memcpy(dst + at, src + at, plan.pass_width * plan.element);
        }
      }
    }
  }

  const RotationMap& map_;
  std::unique_ptr<TokenRows> rows_;
  std::int64_t block_ = 1;  // tokens of the table
  std::optional<Table> table_;
  std::int64_t table_sequence_ = -1, table_start_ = -1;
};

std::unique_ptr<RowMap::Tile> RotationMap::StartTile(
    std::int64_t /*first*/, std::int64_t /*rows*/) const {
  return std::make_unique<RotationTile>(*this);
}

}  // namespace posenc::core
