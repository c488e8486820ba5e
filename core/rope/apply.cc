#include "core/rope/apply.h"

#include <cmath>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "core/error.h"
#include "core/rope/rotation_map.h"

namespace posenc::core {
namespace {

// One of q and k: its heads and how they rotate.
struct Tensor {
  std::shared_ptr<const PreparedRope> prepared;
  Heads shape;
  HeadPlan plan;
};

absl::StatusOr<Tensor> PlanTensor(const ApplyRopeArgs& args,
                                  const LayoutOrder& order,
                                  const ConstTensorView& in,
                                  absl::string_view name) {
  const absl::StatusOr<Heads> shape = ReadHeads(in, order);
  if (!shape.ok()) return Prefixed(name, shape.status());
  if (!args.rope) return FieldRequired("rope", "no encoding is given");
  absl::StatusOr<std::shared_ptr<const PreparedRope>> prepared =
      args.rope(shape->head_dim);
  if (!prepared.ok()) return Prefixed("rope", prepared.status());
  const ResolvedRope& rope = (*prepared)->rope;
  const absl::Status status = CheckHeadCount(rope, in, *shape, name);
  if (!status.ok()) return status;
  const RopeSpec& spec = rope.spec;
  Pairing from = spec.pairing;
  Pairing to = spec.output_pairing;
  if (args.direction != Direction::kForward) std::swap(from, to);
  HeadPlan plan = PlanHeads(in.dtype, shape->head_dim, spec,
                            SegmentsOf(spec, shape->head_dim), from, to);
  return Tensor{*std::move(prepared), *shape, std::move(plan)};
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

// Rows of one direction at the tokens' positions.
class PositionRows : public TokenRows {
 public:
  PositionRows(const ApplyRopeArgs& args, const PreparedRope& prepared,
               TensorRole role, std::shared_ptr<const TokenPositions> positions)
      : rows_(prepared.rope, prepared.frequencies, args.direction, role,
              args.query_scale.has_value() ? &*args.query_scale : nullptr),
        scaled_(args.query_scale.has_value() && role == TensorRole::kQuery),
        positions_(std::move(positions)),
        at_(positions_ == nullptr ? 0 : positions_->axes()) {}

  std::unique_ptr<TokenRows> Clone() const override {
    return std::make_unique<PositionRows>(*this);
  }
  std::size_t pairs() const override { return rows_.pairs(); }
  std::size_t heads() const override { return rows_.heads(); }
  void Fill(std::int64_t b, std::int64_t t, float* row) override {
    rows_.Row(At(b, t), row);
  }
  void Fill(std::int64_t b, std::int64_t t, double* row) override {
    rows_.Row(At(b, t), row);
  }
  bool scaled() const override { return scaled_; }
  double HeadScale(std::int64_t b, std::int64_t t) override {
    return rows_.HeadScale(At(b, t));
  }

 private:
  const double* At(std::int64_t b, std::int64_t t) {
    for (std::size_t a = 0; a < at_.size(); ++a) {
      at_[a] = positions_->at(static_cast<int>(a), b, t);
    }
    return at_.data();
  }

  RotaryRows rows_;
  bool scaled_;
  std::shared_ptr<const TokenPositions> positions_;
  absl::InlinedVector<double, 4> at_;  // of the token at hand
};

}  // namespace

absl::StatusOr<Rotations> PrepareApplyRope(const ApplyRopeArgs& args,
                                           const ConstTensorView* q,
                                           const ConstTensorView* k) {
  if (q == nullptr && k == nullptr) {
    return FieldRequired("q", "neither q nor k is set; at least one must be");
  }
  const absl::StatusOr<LayoutOrder> order = FindLayout(args.layout);
  if (!order.ok()) return order.status();
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

  const ConstTensorView* const inputs[2] = {q, k};
  std::optional<Tensor> tensors[2];
  for (int i = 0; i < 2; ++i) {
    if (inputs[i] == nullptr) continue;
    absl::StatusOr<Tensor> tensor =
        PlanTensor(args, *order, *inputs[i], i == 0 ? "q" : "k");
    if (!tensor.ok()) return tensor.status();
    tensors[i] = *std::move(tensor);
  }
  if (q != nullptr && k != nullptr) {
    const absl::Status status =
        CheckAgreement(tensors[0]->shape, tensors[1]->shape);
    if (!status.ok()) return status;
  }

  const Tensor& any = tensors[0].has_value() ? *tensors[0] : *tensors[1];
  const ResolvedRope& rope = any.prepared->rope;
  const auto has_work = [](const std::optional<Tensor>& tensor) {
    return tensor.has_value() && !tensor->shape.empty();
  };
  std::shared_ptr<const TokenPositions> positions;  // null: no tokens
  // Before positions are expanded: no data bounds the number of tokens here.
  if (has_work(tensors[0]) || has_work(tensors[1])) {
    TokenExtents extents;
    extents.batch = any.shape.batch;
    extents.tokens = any.shape.tokens;
    extents.packed = args.layout == Layout::kThd;
    absl::StatusOr<TokenPositions> expanded =
        ExpandPositions(args.positions, extents, rope.axes(), rope.needs_ids());
    if (!expanded.ok()) return Prefixed("positions", expanded.status());
    const absl::Status reach = CheckXPosReach(rope, *expanded);
    if (!reach.ok()) return Prefixed("positions", reach);
    positions = std::make_shared<const TokenPositions>(*std::move(expanded));
  }

  Rotations rotations;
  for (int i = 0; i < 2; ++i) {
    if (!tensors[i].has_value()) continue;
    auto rows = std::make_unique<const PositionRows>(
        args, *tensors[i]->prepared,
        i == 0 ? TensorRole::kQuery : TensorRole::kKey, positions);
    (i == 0 ? rotations.q : rotations.k) = std::make_unique<RotationMap>(
        tensors[i]->plan, args.layout, tensors[i]->shape,
        positions == nullptr || positions->shared(), std::move(rows));
  }
  return rotations;
}

absl::Status ApplyRope(const ApplyRopeArgs& args, const ConstTensorView* q,
                       const TensorView* q_out, const ConstTensorView* k,
                       const TensorView* k_out) {
  const absl::StatusOr<Rotations> rotations = PrepareApplyRope(args, q, k);
  if (!rotations.ok()) return rotations.status();
  if (q != nullptr) MapAll(*rotations->q, q->data, q_out->data);
  if (k != nullptr) MapAll(*rotations->k, k->data, k_out->data);
  return absl::OkStatus();
}

}  // namespace posenc::core
