#include "core/rope/apply.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/error.h"
#include "core/simd/dispatch.h"

namespace posenc::core {
namespace {

// Rows of a block of tokens stay in the first-level cache (32 KiB and more on
// every CPU served) while the heads that use them pass by.
constexpr std::size_t kBlockBytes = 32 * 1024;
constexpr std::size_t kCacheLine = 64;

// Extents and element strides of a tensor of heads.
struct Heads {
  std::int64_t batch = 1, tokens = 0, heads = 0, head_dim = 0;
  std::int64_t batch_stride = 0, token_stride = 0, head_stride = 0;
};

// The dimension of each letter in a layout's shape.
struct LayoutOrder {
  const char* name;
  int rank;
  int batch, token, head;  // batch -1: there is none
};

const LayoutOrder* FindLayout(Layout layout) {
  static constexpr LayoutOrder kOrders[] = {{"BSHD", 4, 0, 1, 2},
                                            {"BHSD", 4, 0, 2, 1},
                                            {"SBHD", 4, 1, 0, 2},
                                            {"THD", 3, -1, 0, 1}};
  const int i = static_cast<int>(layout) - 1;
  return i >= 0 && i < 4 ? &kOrders[i] : nullptr;
}

// A run of channels that holds whole pairs: all that rotate, or those of one
// axis where each axis splits its own channels into halves.
struct Segment {
  std::int64_t channel;
  std::int64_t first_pair;
  std::int64_t pairs;
};

// One of q and k on its way through.
struct Side {
  Heads shape;
  Dtype dtype = Dtype::kFloat32;
  std::size_t element = 0;  // bytes
  const std::byte* src = nullptr;
  std::byte* dst = nullptr;
  ResolvedRope rope;
  std::vector<Segment> segments;
  // The channels that pass through.
  std::int64_t pass_channel = 0;
  std::int64_t pass_width = 0;
  bool scaled = false;
  simd::RotateKernel rotate = nullptr;
};

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

// Which channels rotate and how, once the encoding is known.
void PlanRotation(Direction direction, Side& side) {
  const RopeSpec& spec = side.rope.spec;
  const std::int64_t head_dim = side.shape.head_dim;
  const std::int64_t width = spec.nope ? 0 : spec.rotary_dim;
  const bool trailing = spec.slice == RotarySlice::kTrailing;
  const std::int64_t start = trailing ? head_dim - width : 0;
  side.pass_channel = trailing ? 0 : width;
  side.pass_width = head_dim - width;
  if (width == 0) return;

  if (spec.axes.has_value() && spec.axes->halves_per_axis) {
    std::int64_t first = 0;
    for (const std::int32_t pairs : spec.axes->sections) {
      if (pairs > 0) side.segments.push_back({start + 2 * first, first, pairs});
      first += pairs;
    }
  } else {
    side.segments.push_back({start, 0, width / 2});
  }
  Pairing from = spec.pairing;
  Pairing to = spec.output_pairing == Pairing::kUnspecified
                   ? spec.pairing
                   : spec.output_pairing;
  if (direction != Direction::kForward) std::swap(from, to);
  side.rotate =
      simd::ActiveKernels().rotate[DtypeIndexOf(side.dtype)]
                                  [PairingIndexOf(from)][PairingIndexOf(to)];
}

absl::StatusOr<Side> PlanSide(const ApplyRopeArgs& args,
                              const LayoutOrder& order,
                              const ConstTensorView& in, const TensorView& out,
                              absl::string_view name) {
  const absl::StatusOr<Heads> shape = ReadHeads(in, order);
  if (!shape.ok()) return Prefixed(name, shape.status());
  absl::StatusOr<ResolvedRope> rope =
      ResolveSource(args.rope, shape->head_dim, MissingLength::kError);
  if (!rope.ok()) return Prefixed("rope", rope.status());
  if (rope->heads > 0 && rope->heads != shape->heads) {
    return MakeError(
        absl::StatusCode::kInvalidArgument, ErrorReason::kShapeMismatch,
        absl::StrCat(name, ".shape"),
        absl::StrCat(ShapeToString(in.shape), " has ", shape->heads,
                     " heads; the frequencies are ", "given for ", rope->heads),
        {{"expected", absl::StrCat(rope->heads)},
         {"actual", absl::StrCat(shape->heads)}});
  }
  Side side;
  side.shape = *shape;
  side.dtype = in.dtype;
  side.element = DtypeSize(in.dtype);
  side.src = static_cast<const std::byte*>(in.data);
  side.dst = static_cast<std::byte*>(out.data);
  side.rope = *std::move(rope);
  PlanRotation(args.direction, side);
  return side;
}

absl::Status CheckAgreement(const Heads& q, const Heads& k) {
  if (q.batch == k.batch && q.tokens == k.tokens) return absl::OkStatus();
  return MakeError(
      absl::StatusCode::kInvalidArgument, ErrorReason::kShapeMismatch,
      "k.shape",
      absl::StrCat("batch ", k.batch, " and sequence ", k.tokens,
                   ", but q has ", q.batch, " and ", q.tokens,
                   "; q and k must agree in both"),
      {{"expected", absl::StrCat("[", q.batch, ", ", q.tokens, "]")},
       {"actual", absl::StrCat("[", k.batch, ", ", k.tokens, "]")}});
}

absl::Status CheckQueryScale(const QueryScale& scale, bool has_q) {
  if (!has_q) {
    return FieldInvalid("query_scale",
                        "set without q; it multiplies q and nothing else");
  }
  if (!std::isfinite(scale.beta)) {
    return FieldInvalid("query_scale.beta",
                        absl::StrCat(scale.beta, "; must be finite"));
  }
  if (!(scale.floor_scale > 0) || !std::isfinite(scale.floor_scale)) {
    return FieldInvalid(
        "query_scale.floor_scale",
        absl::StrCat(scale.floor_scale, "; must be finite and greater than 0"));
  }
  return absl::OkStatus();
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
  Block(const Side& side, const ApplyRopeArgs& args, TensorRole role)
      : rows_(side.rope, args.direction, role,
              side.scaled ? &*args.query_scale : nullptr),
        wide_(side.dtype == Dtype::kFloat64),
        scaled_(side.scaled),
        row_(side.segments.empty() ? 0 : rows_.heads() * 2 * rows_.pairs()),
        position_(static_cast<std::size_t>(side.rope.axes())) {
    const std::size_t row_bytes = row_ * (wide_ ? sizeof(double) : 4);
    tokens_ = static_cast<std::int64_t>(std::max<std::size_t>(
        1, kBlockBytes / std::max<std::size_t>(row_bytes, kCacheLine)));
    tokens_ = std::min(tokens_, std::max<std::int64_t>(1, side.shape.tokens));
    std::size_t space = tokens_ * row_bytes + kCacheLine;
    storage_ = std::make_unique<std::byte[]>(space);
    table_ = storage_.get();
    std::align(kCacheLine, tokens_ * row_bytes, table_, space);
    if (scaled_) scales_.resize(tokens_);
  }

  // Most tokens that a block has.
  std::int64_t tokens() const { return tokens_; }

  // Computes the rows of tokens [first, first + n) of sequence b.
  void Fill(const TokenPositions& positions, std::int64_t b, std::int64_t first,
            std::int64_t n) {
    for (std::int64_t t = 0; t < n; ++t) {
      for (std::size_t a = 0; a < position_.size(); ++a) {
        position_[a] = positions.at(static_cast<int>(a), b, first + t);
      }
      if (row_ > 0 && wide_) {
        rows_.Row(position_.data(), static_cast<double*>(table_) + t * row_);
      } else if (row_ > 0) {
        rows_.Row(position_.data(), static_cast<float*>(table_) + t * row_);
      }
      if (scaled_) scales_[t] = rows_.HeadScale(position_.data());
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
      job.table_token_stride = static_cast<std::ptrdiff_t>(row_);
      job.table_head_stride = side.rope.heads > 0 ? 2 * pairs : 0;
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
        if (scaled_ && scales_[t] != 1) {
          ScaleChannels(side, src + at, dst + at, scales_[t]);
        } else {
          std::memcpy(dst + at, src + at, side.pass_width * element);
        }
      }
    }
  }

 private:
  RotaryRows rows_;
  bool wide_;  // float64 rows
  bool scaled_;
  std::size_t row_;  // elements of one token's row; 0: nothing rotates
  std::vector<double> position_;  // of the token at hand
  std::int64_t tokens_;
  std::unique_ptr<std::byte[]> storage_;
  void* table_;
  std::vector<double> scales_;
};

// True where the rows of q serve k too.
bool SharesRows(const Side& q, const Side& k) {
  return !q.scaled && !q.rope.spec.xpos.has_value() &&
         q.rope.inv_freq == k.rope.inv_freq &&
         (q.dtype == Dtype::kFloat64) == (k.dtype == Dtype::kFloat64);
}

void RotateAll(const ApplyRopeArgs& args, const TokenPositions& positions,
               const std::vector<const Side*>& sides,
               const std::vector<TensorRole>& roles) {
  std::vector<Block> blocks;
  blocks.reserve(sides.size());
  for (std::size_t i = 0; i < sides.size(); ++i) {
    if (i == 0 || !SharesRows(*sides[0], *sides[i])) {
      blocks.emplace_back(*sides[i], args, roles[i]);
    }
  }
  const Heads& shape = sides[0]->shape;
  std::int64_t step = shape.tokens;
  for (const Block& block : blocks) step = std::min(step, block.tokens());
  // Shared positions: one block of rows serves every sequence.
  const std::int64_t rounds = positions.shared() ? 1 : shape.batch;
  const std::int64_t sequences = positions.shared() ? shape.batch : 1;
  for (std::int64_t round = 0; round < rounds; ++round) {
    for (std::int64_t first = 0; first < shape.tokens; first += step) {
      const std::int64_t n = std::min(step, shape.tokens - first);
      for (Block& block : blocks) block.Fill(positions, round, first, n);
      for (std::int64_t s = 0; s < sequences; ++s) {
        for (std::size_t i = 0; i < sides.size(); ++i) {
          blocks[std::min(i, blocks.size() - 1)].Rotate(
              *sides[i], round * sequences + s, first, n);
        }
      }
    }
  }
}

bool IsEmpty(const Heads& shape) {
  return shape.batch == 0 || shape.tokens == 0 || shape.heads == 0;
}

}  // namespace

absl::Status ApplyRope(const ApplyRopeArgs& args, const ConstTensorView* q,
                       const TensorView* q_out, const ConstTensorView* k,
                       const TensorView* k_out) {
  if (q == nullptr && k == nullptr) {
    return FieldRequired("q", "neither q nor k is set; at least one must be");
  }
  const LayoutOrder* const order = FindLayout(args.layout);
  if (order == nullptr) {
    return FieldInvalid("layout",
                        absl::StrCat(static_cast<int>(args.layout),
                                     "; must be BSHD, BHSD, SBHD or THD"));
  }
  if (args.direction < Direction::kForward ||
      args.direction > Direction::kAdjoint) {
    return FieldInvalid("direction",
                        absl::StrCat(static_cast<int>(args.direction),
                                     "; must be forward, inverse or adjoint"));
  }
  if (args.query_scale.has_value()) {
    const absl::Status status =
        CheckQueryScale(*args.query_scale, q != nullptr);
    if (!status.ok()) return status;
  }

  std::optional<Side> sides[2];
  if (q != nullptr) {
    absl::StatusOr<Side> side = PlanSide(args, *order, *q, *q_out, "q");
    if (!side.ok()) return side.status();
    sides[0] = *std::move(side);
    sides[0]->scaled = args.query_scale.has_value();
  }
  if (k != nullptr) {
    absl::StatusOr<Side> side = PlanSide(args, *order, *k, *k_out, "k");
    if (!side.ok()) return side.status();
    sides[1] = *std::move(side);
  }
  if (q != nullptr && k != nullptr) {
    const absl::Status status =
        CheckAgreement(sides[0]->shape, sides[1]->shape);
    if (!status.ok()) return status;
  }

  std::vector<const Side*> present;
  std::vector<TensorRole> roles;
  for (int i = 0; i < 2; ++i) {
    if (!sides[i].has_value() || IsEmpty(sides[i]->shape)) continue;
    present.push_back(&*sides[i]);
    roles.push_back(i == 0 ? TensorRole::kQuery : TensorRole::kKey);
  }
  // Before positions are expanded: no data bounds the number of tokens here.
  if (present.empty()) return absl::OkStatus();

  const Side& any = sides[0].has_value() ? *sides[0] : *sides[1];
  TokenExtents extents;
  extents.batch = any.shape.batch;
  extents.tokens = any.shape.tokens;
  extents.packed = args.layout == Layout::kThd;
  const absl::StatusOr<TokenPositions> positions = ExpandPositions(
      args.positions, extents, any.rope.axes(), any.rope.needs_ids());
  if (!positions.ok()) return Prefixed("positions", positions.status());
  const absl::Status reach = CheckXPosReach(any.rope, *positions);
  if (!reach.ok()) return Prefixed("positions", reach);

  RotateAll(args, *positions, present, roles);
  return absl::OkStatus();
}

}  // namespace posenc::core
