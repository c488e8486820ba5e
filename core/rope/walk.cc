#include "core/rope/walk.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/error.h"
#include "core/simd/dispatch.h"

namespace posenc::core {
namespace {

// Rows of a block of tokens stay in the first-level cache (32 KiB and more on
// every CPU served) while the heads that use them pass by.
constexpr std::size_t kBlockBytes = 32 * 1024;
constexpr std::size_t kCacheLine = 64;

int DtypeIndexOf(Dtype dtype) {
  switch (dtype) {
    case Dtype::kFloat16:
      return simd::kF16;
    case Dtype::kBfloat16:
      return simd::kBf16;
    case Dtype::kFloat64:
      return simd::kF64;
    default:
      return simd::kF32;
  }
}

int PairingIndexOf(Pairing pairing) {
  return pairing == Pairing::kInterleaved ? simd::kInterleaved : simd::kHalf;
}

// dst[i] = src[i] * scale, in float32 (float64 for float64), rounded once.
void ScaleChannels(const Side& side, const std::byte* src, std::byte* dst,
                   double scale) {
  const auto width = static_cast<std::size_t>(side.pass_width);
  if (side.dtype == Dtype::kFloat64) {
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
    const std::byte* from = src + i * side.element;
    std::byte* to = dst + i * side.element;
    const bool half = side.dtype == Dtype::kFloat16;
    if (side.element == sizeof(float)) {
      std::memcpy(wide.data(), from, n * sizeof(float));
    } else {
      std::memcpy(bits.data(), from, n * sizeof(std::uint16_t));
      (half ? kernels.widen_f16 : kernels.widen_bf16)(bits.data(), wide.data(),
                                                      n);
    }
    for (std::size_t j = 0; j < n; ++j) wide[j] *= factor;
    if (side.element == sizeof(float)) {
      std::memcpy(to, wide.data(), n * sizeof(float));
    } else {
      (half ? kernels.narrow_f16 : kernels.narrow_bf16)(wide.data(),
                                                        bits.data(), n);
      std::memcpy(to, bits.data(), n * sizeof(std::uint16_t));
    }
  }
}

// Table rows of a block of tokens, and the factor on their pass-through
// channels.
class Block {
 public:
  Block(const Side& side, TokenRows& rows)
      : rows_(rows),
        wide_(side.dtype == Dtype::kFloat64),
        row_(side.segments.empty() ? 0 : rows.heads() * 2 * rows.pairs()) {
    const std::size_t row_bytes =
        row_ * (wide_ ? sizeof(double) : sizeof(float));
    tokens_ = static_cast<std::int64_t>(std::max<std::size_t>(
        1, kBlockBytes / std::max<std::size_t>(row_bytes, kCacheLine)));
    tokens_ = std::min(tokens_, std::max<std::int64_t>(1, side.shape.tokens));
    std::size_t space = tokens_ * row_bytes + kCacheLine;
    storage_ = std::make_unique<std::byte[]>(space);
    table_ = storage_.get();
    std::align(kCacheLine, tokens_ * row_bytes, table_, space);
    if (rows_.scaled()) scales_.resize(tokens_);
  }

  // Most tokens that a block has.
  std::int64_t tokens() const { return tokens_; }

  // Computes the rows of tokens [first, first + n) of sequence b.
  void Fill(std::int64_t b, std::int64_t first, std::int64_t n) {
    for (std::int64_t t = 0; t < (rows_.uniform() ? 1 : n); ++t) {
      if (row_ > 0 && wide_) {
        rows_.Fill(b, first + t, static_cast<double*>(table_) + t * row_);
      } else if (row_ > 0) {
        rows_.Fill(b, first + t, static_cast<float*>(table_) + t * row_);
      }
      if (rows_.scaled()) scales_[t] = rows_.HeadScale(b, first + t);
    }
  }

  // Rotates tokens [first, first + n) of sequence b, whose rows were filled.
  void Rotate(const Side& side, std::int64_t b, std::int64_t first,
              std::int64_t n) const {
    const Heads& shape = side.shape;
    const auto element = static_cast<std::int64_t>(side.element);
    const std::int64_t origin =
        (b * shape.batch_stride + first * shape.token_stride) * element;
    const std::byte* const src = side.src + origin;
    std::byte* const dst = side.dst + origin;
    const auto pairs = static_cast<std::int64_t>(rows_.pairs());
    const std::int64_t table_element = wide_ ? sizeof(double) : sizeof(float);
    for (const Segment& segment : side.segments) {
      simd::RotateJob job;
      job.src = src + segment.channel * element;
      job.dst = dst + segment.channel * element;
      job.tokens = n;
      job.heads = shape.heads;
      job.pairs = segment.pairs;
      job.src_token_stride = job.dst_token_stride = shape.token_stride;
      job.src_head_stride = job.dst_head_stride = shape.head_stride;
      job.table = static_cast<const std::byte*>(table_) +
                  segment.first_pair * table_element;
      job.table_token_stride =
          rows_.uniform() ? 0 : static_cast<std::ptrdiff_t>(row_);
      job.table_head_stride = rows_.heads() > 1 ? 2 * pairs : 0;
      job.table_sine_offset = pairs;
      side.rotate(job);
    }
    if (side.pass_width == 0) return;
    for (std::int64_t t = 0; t < n; ++t) {
      for (std::int64_t h = 0; h < shape.heads; ++h) {
        const std::int64_t at = (t * shape.token_stride +
                                 h * shape.head_stride + side.pass_channel) *
                                element;
        // A factor of 1 must not touch bits either.
        if (rows_.scaled() && scales_[t] != 1) {
          ScaleChannels(side, src + at, dst + at, scales_[t]);
        } else if (dst != src) {
          std::memcpy(dst + at, src + at, side.pass_width * element);
        }
      }
    }
  }

 private:
  TokenRows& rows_;
  bool wide_;        // float64 rows
  std::size_t row_;  // elements of one token's row; 0: nothing rotates
  std::int64_t tokens_;
  std::unique_ptr<std::byte[]> storage_;
  void* table_;
  std::vector<double> scales_;
};

}  // namespace

absl::StatusOr<LayoutOrder> FindLayout(Layout layout) {
  static constexpr LayoutOrder kOrders[] = {{"BSHD", 4, 0, 1, 2},
                                            {"BHSD", 4, 0, 2, 1},
                                            {"SBHD", 4, 1, 0, 2},
                                            {"THD", 3, -1, 0, 1}};
  const int i = static_cast<int>(layout) - 1;
  if (i >= 0 && i < 4) return kOrders[i];
  return FieldInvalid("layout",
                      absl::StrCat(static_cast<int>(layout),
                                   "; must be BSHD, BHSD, SBHD or THD"));
}

absl::StatusOr<Heads> ReadHeads(const ConstTensorView& tensor,
                                const LayoutOrder& order) {
  if (!IsFloating(tensor.dtype)) {
    return FieldInvalid("dtype",
                        absl::StrCat(DtypeName(tensor.dtype),
                                     " cannot be rotated; must be float32, "
                                     "float16, bfloat16 or float64"));
  }
  const Shape& shape = tensor.shape;
  if (static_cast<int>(shape.size()) != order.rank) {
    return FieldInvalid(
        "shape",
        absl::StrCat(ShapeToString(shape), " has rank ", shape.size(),
                     "; layout ", order.name, " has rank ", order.rank));
  }
  const absl::StatusOr<std::int64_t> count = ElementCount(shape);
  if (!count.ok()) return count.status();
  if (shape.back() == 0) {
    return FieldInvalid("shape", absl::StrCat(ShapeToString(shape),
                                              " has head_dim 0; must be > 0"));
  }
  Heads heads;
  if (order.batch >= 0) heads.batch = shape[order.batch];
  heads.tokens = shape[order.token];
  heads.heads = shape[order.head];
  heads.head_dim = shape.back();
  // An empty tensor is never walked, and its strides may not be representable.
  if (*count == 0) return heads;
  std::int64_t stride = heads.head_dim;
  for (int i = order.rank - 2; i >= 0; --i) {
    if (i == order.batch) heads.batch_stride = stride;
    if (i == order.token) heads.token_stride = stride;
    if (i == order.head) heads.head_stride = stride;
    stride *= shape[i];
  }
  return heads;
}

absl::Status CheckHeadCount(const ResolvedRope& rope,
                            const ConstTensorView& tensor, const Heads& heads,
                            absl::string_view name) {
  if (rope.heads == 0 || rope.heads == heads.heads) return absl::OkStatus();
  return MakeError(
      absl::StatusCode::kInvalidArgument, ErrorReason::kShapeMismatch,
      absl::StrCat(name, ".shape"),
      absl::StrCat(ShapeToString(tensor.shape), " has ", heads.heads,
                   " heads; the frequencies are given for ", rope.heads),
      {{"expected", absl::StrCat(rope.heads)},
       {"actual", absl::StrCat(heads.heads)}});
}

std::vector<Segment> SegmentsOf(const RopeSpec& spec, std::int64_t head_dim) {
  if (spec.nope) return {};
  const std::int64_t start = spec.slice == RotarySlice::kTrailing
                                 ? head_dim - spec.rotary_dim
                                 : std::int64_t{0};
  if (!spec.axes.has_value() || !spec.axes->halves_per_axis) {
    return {{start, 0, spec.rotary_dim / 2}};
  }
  std::vector<Segment> segments;
  std::int64_t first = 0;
  for (const std::int32_t pairs : spec.axes->sections) {
    if (pairs > 0) segments.push_back({start + 2 * first, first, pairs});
    first += pairs;
  }
  return segments;
}

Side PlanSide(const ConstTensorView& in, const TensorView& out,
              const Heads& shape, const RopeSpec& spec,
              std::vector<Segment> segments, Pairing from, Pairing to) {
  Side side;
  side.shape = shape;
  side.dtype = in.dtype;
  side.element = DtypeSize(in.dtype);
  side.src = static_cast<const std::byte*>(in.data);
  side.dst = static_cast<std::byte*>(out.data);
  side.segments = std::move(segments);
  const std::int64_t width = spec.nope ? 0 : spec.rotary_dim;
  side.pass_channel = spec.slice == RotarySlice::kTrailing ? 0 : width;
  side.pass_width = shape.head_dim - width;
  side.rotate =
      simd::ActiveKernels().rotate[DtypeIndexOf(in.dtype)][PairingIndexOf(from)]
                                  [PairingIndexOf(to)];
  return side;
}

void RotateAll(const std::vector<Rotation>& rotations, bool shared) {
  std::vector<Block> blocks;
  blocks.reserve(rotations.size());
  std::vector<const Block*> block_of;  // of each rotation
  for (std::size_t i = 0; i < rotations.size(); ++i) {
    if (i == 0 || rotations[i].rows != rotations[i - 1].rows) {
      blocks.emplace_back(*rotations[i].side, *rotations[i].rows);
    }
    block_of.push_back(&blocks.back());
  }
  const Heads& shape = rotations[0].side->shape;
  std::int64_t step = shape.tokens;
  for (const Block& block : blocks) step = std::min(step, block.tokens());
  // Shared rows: one block serves every sequence.
  const std::int64_t rounds = shared ? 1 : shape.batch;
  const std::int64_t sequences = shared ? shape.batch : 1;
  for (std::int64_t round = 0; round < rounds; ++round) {
    for (std::int64_t first = 0; first < shape.tokens; first += step) {
      const std::int64_t n = std::min(step, shape.tokens - first);
      for (Block& block : blocks) block.Fill(round, first, n);
      for (std::int64_t s = 0; s < sequences; ++s) {
        for (std::size_t i = 0; i < rotations.size(); ++i) {
          block_of[i]->Rotate(*rotations[i].side, round * sequences + s, first,
                              n);
        }
      }
    }
  }
}

}  // namespace posenc::core
