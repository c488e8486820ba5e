#include "core/rope/apply.h"

#include <cmath>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/error.h"
#include "core/rope/walk.h"

namespace posenc::core {
namespace {

// One of q and k: the tensor and how it rotates.
struct Tensor {
  ResolvedRope rope;
  Side side;
};

absl::StatusOr<Tensor> PlanTensor(const ApplyRopeArgs& args,
                                  const LayoutOrder& order,
                                  const ConstTensorView& in,
                                  const TensorView& out,
                                  absl::string_view name) {
  const absl::StatusOr<Heads> shape = ReadHeads(in, order);
  if (!shape.ok()) return Prefixed(name, shape.status());
  absl::StatusOr<ResolvedRope> rope =
      ResolveSource(args.rope, shape->head_dim, MissingLength::kError);
  if (!rope.ok()) return Prefixed("rope", rope.status());
  const absl::Status status = CheckHeadCount(*rope, in, *shape, name);
  if (!status.ok()) return status;
  const RopeSpec& spec = rope->spec;
  Pairing from = spec.pairing;
  Pairing to = spec.output_pairing;
  if (args.direction != Direction::kForward) std::swap(from, to);
  Side side = PlanSide(in, out, *shape, spec, SegmentsOf(spec, shape->head_dim),
                       from, to);
  return Tensor{*std::move(rope), std::move(side)};
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
  PositionRows(const ApplyRopeArgs& args, const ResolvedRope& rope,
               TensorRole role, const TokenPositions& positions)
      : rows_(rope, args.direction, role,
              args.query_scale.has_value() ? &*args.query_scale : nullptr),
        scaled_(args.query_scale.has_value() && role == TensorRole::kQuery),
        positions_(positions),
        at_(positions.axes()) {}

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
      at_[a] = positions_.at(static_cast<int>(a), b, t);
    }
    return at_.data();
  }

  RotaryRows rows_;
  bool scaled_;
  const TokenPositions& positions_;
  std::vector<double> at_;  // of the token at hand
};

// True where the rows of q serve k too.
bool SharesRows(const ApplyRopeArgs& args, const Tensor& q, const Tensor& k) {
  return !args.query_scale.has_value() && !q.rope.spec.xpos.has_value() &&
         q.rope.inv_freq == k.rope.inv_freq &&
         (q.side.dtype == Dtype::kFloat64) == (k.side.dtype == Dtype::kFloat64);
}

}  // namespace

absl::Status ApplyRope(const ApplyRopeArgs& args, const ConstTensorView* q,
                       const TensorView* q_out, const ConstTensorView* k,
                       const TensorView* k_out) {
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

  std::optional<Tensor> tensors[2];
  if (q != nullptr) {
    absl::StatusOr<Tensor> tensor = PlanTensor(args, *order, *q, *q_out, "q");
    if (!tensor.ok()) return tensor.status();
    tensors[0] = *std::move(tensor);
  }
  if (k != nullptr) {
    absl::StatusOr<Tensor> tensor = PlanTensor(args, *order, *k, *k_out, "k");
    if (!tensor.ok()) return tensor.status();
    tensors[1] = *std::move(tensor);
  }
  if (q != nullptr && k != nullptr) {
    const absl::Status status =
        CheckAgreement(tensors[0]->side.shape, tensors[1]->side.shape);
    if (!status.ok()) return status;
  }

  const auto has_work = [](const std::optional<Tensor>& tensor) {
    return tensor.has_value() && !tensor->side.shape.empty();
  };
  // Before positions are expanded: no data bounds the number of tokens here.
  if (!has_work(tensors[0]) && !has_work(tensors[1])) return absl::OkStatus();

  const Tensor& any = tensors[0].has_value() ? *tensors[0] : *tensors[1];
  TokenExtents extents;
  extents.batch = any.side.shape.batch;
  extents.tokens = any.side.shape.tokens;
  extents.packed = args.layout == Layout::kThd;
  const absl::StatusOr<TokenPositions> positions = ExpandPositions(
      args.positions, extents, any.rope.axes(), any.rope.needs_ids());
  if (!positions.ok()) return Prefixed("positions", positions.status());
  const absl::Status reach = CheckXPosReach(any.rope, *positions);
  if (!reach.ok()) return Prefixed("positions", reach);

  std::unique_ptr<PositionRows> rows[2];
  std::vector<Rotation> rotations;
  for (int i = 0; i < 2; ++i) {
    if (!has_work(tensors[i])) continue;
    if (!rotations.empty() && SharesRows(args, *tensors[0], *tensors[1])) {
      rotations.push_back({&tensors[i]->side, rotations[0].rows});
      continue;
    }
    rows[i] = std::make_unique<PositionRows>(
        args, tensors[i]->rope, i == 0 ? TensorRole::kQuery : TensorRole::kKey,
        *positions);
    rotations.push_back({&tensors[i]->side, rows[i].get()});
  }
  RotateAll(rotations, positions->shared());
  return absl::OkStatus();
}

}  // namespace posenc::core
