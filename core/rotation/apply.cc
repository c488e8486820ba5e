#include "core/rotation/apply.h"

#include <cmath>
#include <cstddef>
#include <memory>
#include <optional>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/rotation/rotation_map.h"

namespace posenc::core {
namespace {

// The heads of q or of k, and their rotation. q and k may differ in heads,
// head_dim and dtype.
struct RotatedTensor {
  std::shared_ptr<const PreparedRope> prepared;
  HeadLayout layout;
  HeadRotation rotation;
};

// Prepares one of q and k. `other` is the other tensor, if that tensor is
// already prepared. Two tensors with the same head_dim share one prepared
// encoding.
absl::StatusOr<RotatedTensor> PrepareTensor(
    const ApplyRopeArgs& args, const HeadLayout& layout,
    const ConstTensorView& in, absl::string_view name,
    const std::optional<RotatedTensor>& other) {
  if (!args.rope) return FieldRequired("rope", "no encoding is given");
  absl::StatusOr<std::shared_ptr<const PreparedRope>> prepared =
      other.has_value() && other->layout.head_dim == layout.head_dim
          ? other->prepared
          : args.rope(layout.head_dim);
  RETURN_IF_ERROR(Prefixed("rope", prepared.status()));
  const ResolvedRope& rope = (*prepared)->rope;
  RETURN_IF_ERROR(CheckHeadCount(rope, in, layout, name));
  const RopeSpec& spec = rope.spec;
  // A forward rotation reads `pairing`; the other directions read
  // `output_pairing`.
  Pairing from = spec.pairing;
  Pairing to = spec.output_pairing;
  if (args.direction != Direction::kForward) std::swap(from, to);
  HeadRotation rotation = MakeHeadRotation(
      in.dtype, args.saturation, BlockFormat::kNone, layout.head_dim, spec,
      SegmentsOf(spec, layout.head_dim), from, to);
  return RotatedTensor{*std::move(prepared), layout, std::move(rotation)};
}

absl::Status CheckAgreement(const HeadLayout& q, const HeadLayout& k) {
  if (q.batch == k.batch && q.tokens == k.tokens) return absl::OkStatus();
  return ShapeMismatch("k.shape",
                       absl::StrCat("batch ", k.batch, " and sequence ",
                                    k.tokens, ", but q has ", q.batch, " and ",
                                    q.tokens, "; q and k must agree in both"),
                       absl::StrCat("[", q.batch, ", ", q.tokens, "]"),
                       absl::StrCat("[", k.batch, ", ", k.tokens, "]"));
}

// With these bounds the scale, and its product with an amplitude, are normal
// float32 numbers. A negative beta would make the scale 0 at some position.
constexpr double kMaxBeta = 0x1p40;
constexpr double kMinFloorScale = 0x1p-40;

absl::Status CheckQueryScale(const QueryScale& scale, bool has_q) {
  if (!has_q) {
    return FieldInvalid("query_scale",
                        "set without q; it multiplies q and nothing else");
  }
  // The conditions are negated so that they also reject NaN.
  if (!(scale.beta >= 0 && scale.beta <= kMaxBeta)) {
    return MustBe("query_scale.beta", scale.beta, "0 to 2^40");
  }
  if (!(scale.floor_scale >= kMinFloorScale) ||
      !std::isfinite(scale.floor_scale)) {
    return MustBe("query_scale.floor_scale", scale.floor_scale,
                  "finite and at least 2^-40");
  }
  return absl::OkStatus();
}

// Expands the positions of tokens. `rope` is null if the encoding is not known.
// The result is then null, because the number of axes is not known; missing
// positions are still an error.
absl::StatusOr<std::shared_ptr<const TokenPositions>> Expand(
    const ApplyRopeArgs& args, const HeadLayout& layout,
    const ResolvedRope* rope) {
  if (rope == nullptr &&
      !std::holds_alternative<std::monostate>(args.positions)) {
    return nullptr;
  }
  const TokenExtents extents = {layout.batch, layout.tokens,
                                args.layout == Layout::kThd, args.reserve};
  ASSIGN_OR_RETURN(TokenPositions expanded,
                   ExpandPositions(args.positions, extents,
                                   rope == nullptr ? 1 : rope->axes(),
                                   rope != nullptr && rope->needs_ids()));
  if (rope == nullptr) return nullptr;
  RETURN_IF_ERROR(CheckXPosReach(*rope, expanded, FieldOf(args.positions)));
  return std::make_shared<const TokenPositions>(std::move(expanded));
}

class PositionCosSin : public CosSinSource {
 public:
  PositionCosSin(const ApplyRopeArgs& args,
                 std::shared_ptr<const PreparedRope> prepared, TensorRole role,
                 std::shared_ptr<const TokenPositions> positions)
      : evaluator_(std::move(prepared), args.direction, role,
                   args.query_scale.has_value() ? &*args.query_scale : nullptr),
        scaled_(args.query_scale.has_value() && role == TensorRole::kQuery),
        positions_(std::move(positions)),
        at_(positions_ == nullptr ? 0 : positions_->axes()) {}
  std::unique_ptr<CosSinSource> Clone() const override {
    return std::make_unique<PositionCosSin>(*this);
  }
  std::size_t pairs() const override { return evaluator_.pairs(); }
  std::size_t heads() const override { return evaluator_.heads(); }
  void Fill(std::int64_t b, std::int64_t t, float* row) override {
    evaluator_.Row(At(b, t), row);
  }
  void Fill(std::int64_t b, std::int64_t t, double* row) override {
    evaluator_.Row(At(b, t), row);
  }
  void FillRun(std::int64_t b, std::int64_t t, std::int64_t n,
               float* rows) override {
    if (!evaluator_.HasSums()) return CosSinSource::FillRun(b, t, n, rows);
    if (anchor_ == nullptr) {
      anchor_ = std::make_shared<CosSinEvaluator::Anchor>(pairs());
    }
    const std::int64_t first =
        (positions_->shared() ? 0 : b) * positions_->tokens() + t;
    evaluator_.Rows(absl::MakeConstSpan(positions_->values())
                        .subspan(static_cast<std::size_t>(first),
                                 static_cast<std::size_t>(n)),
                    rows, rows + pairs(),
                    static_cast<std::ptrdiff_t>(2 * pairs()), false,
                    anchor_.get());
  }
  bool scaled() const override { return scaled_; }
  double HeadScale(std::int64_t b, std::int64_t t) override {
    return evaluator_.HeadScale(At(b, t));
  }

 private:
  const double* At(std::int64_t b, std::int64_t t) {
    for (std::size_t a = 0; a < at_.size(); ++a) {
      at_[a] = positions_->at(static_cast<int>(a), b, t);
    }
    return at_.data();
  }

  CosSinEvaluator evaluator_;
  // The first FillRun() makes the anchor. A source that was used must not be
  // cloned, because the clone would share the anchor.
  std::shared_ptr<CosSinEvaluator::Anchor> anchor_;
  bool scaled_;
  std::shared_ptr<const TokenPositions> positions_;
  // The current token's position on each axis.
  absl::InlinedVector<double, 4> at_;
};

}  // namespace

absl::StatusOr<Rotations> PrepareApplyRope(const ApplyRopeArgs& args,
                                           const ConstTensorView* q,
                                           const ConstTensorView* k) {
  if (q == nullptr && k == nullptr) {
    return FieldRequired("q",
                         "q and k are both unset; at least one must be set");
  }
  ASSIGN_OR_RETURN(const LayoutOrder order, FindLayout(args.layout));
  Faults faults;
  if (args.direction < Direction::kForward ||
      args.direction > Direction::kAdjoint) {
    faults.Note(MustBe("direction", static_cast<int>(args.direction),
                       "forward, inverse or adjoint"));
  }
  if (args.query_scale.has_value()) {
    faults.Note(CheckQueryScale(*args.query_scale, q != nullptr));
  }

  const ConstTensorView* const inputs[2] = {q, k};
  std::optional<HeadLayout> layouts[2];
  std::optional<RotatedTensor> tensors[2];
  for (int i = 0; i < 2; ++i) {
    if (inputs[i] == nullptr) continue;
    const char* const name = i == 0 ? "q" : "k";
    faults.Note(CheckSaturation(args.saturation, inputs[i]->dtype, name));
    const absl::StatusOr<HeadLayout> layout =
        ReadHeadLayout(*inputs[i], order, /*takes_int8=*/false);
    if (!faults.Note(Prefixed(name, layout.status()))) continue;
    layouts[i] = *layout;
    absl::StatusOr<RotatedTensor> tensor =
        PrepareTensor(args, *layout, *inputs[i], name, tensors[0]);
    if (faults.Note(tensor.status())) tensors[i] = *std::move(tensor);
  }
  const bool agree = !layouts[0].has_value() || !layouts[1].has_value() ||
                     faults.Note(CheckAgreement(*layouts[0], *layouts[1]));

  std::shared_ptr<const TokenPositions> positions;  // null: no tokens
  const auto has_work = [](const std::optional<HeadLayout>& layout) {
    return layout.has_value() && !layout->empty();
  };
  // The shape of a tensor without elements may have any number of tokens, and
  // expanding their positions could take any amount of memory.
  if (agree && (has_work(layouts[0]) || has_work(layouts[1]))) {
    const std::optional<RotatedTensor>& rotated =
        tensors[0].has_value() ? tensors[0] : tensors[1];
    absl::StatusOr<std::shared_ptr<const TokenPositions>> expanded =
        Expand(args, layouts[0].has_value() ? *layouts[0] : *layouts[1],
               rotated.has_value() ? &rotated->prepared->rope : nullptr);
    if (faults.Note(Prefixed("positions", expanded.status()))) {
      positions = *std::move(expanded);
    }
  }
  if (!faults.none()) return faults.status();

  Rotations rotations;
  for (int i = 0; i < 2; ++i) {
    if (!tensors[i].has_value()) continue;
    auto source = std::make_unique<const PositionCosSin>(
        args, tensors[i]->prepared,
        i == 0 ? TensorRole::kQuery : TensorRole::kKey, positions);
    (i == 0 ? rotations.q : rotations.k) = std::make_unique<RotationMap>(
        tensors[i]->rotation, args.layout, tensors[i]->layout,
        positions == nullptr || positions->shared(), std::move(source));
  }
  return rotations;
}

absl::Status ApplyRope(const ApplyRopeArgs& args, const ConstTensorView* q,
                       const TensorView* q_out, const ConstTensorView* k,
                       const TensorView* k_out) {
  ASSIGN_OR_RETURN(const Rotations rotations, PrepareApplyRope(args, q, k));
  if (q != nullptr) MapAll(*rotations.q, q->data, q_out->data);
  if (k != nullptr) MapAll(*rotations.k, k->data, k_out->data);
  return absl::OkStatus();
}

}  // namespace posenc::core
