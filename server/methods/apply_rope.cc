// ApplyRope and ApplyRopeStream rotate q, k or both.

#include <memory>
#include <utility>

#include "absl/algorithm/container.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/rotation/apply.h"
#include "posenc/v1/service.pb.h"
#include "server/convert/fields.h"
#include "server/convert/positions.h"
#include "server/convert/rope.h"
#include "server/convert/tensor.h"
#include "server/methods/methods.h"
#include "server/methods/rope_source.h"
#include "server/methods/stream.h"

namespace posenc::server {
namespace {

// The status is not OK if the tensor is not given or not readable.
using GivenTensor = absl::StatusOr<InputTensor>;

// Returns whether a tensor is given and readable, but empty.
bool IsEmpty(const GivenTensor& tensor) {
  return tensor.ok() && absl::c_linear_search(tensor->view.shape, 0);
}

absl::StatusOr<core::Rotations> Prepare(const core::ApplyRopeArgs& args,
                                        const GivenTensor& q,
                                        const GivenTensor& k) {
  return core::PrepareApplyRope(args, q.ok() ? &q->view : nullptr,
                                k.ok() ? &k->view : nullptr);
}

// Adds the faults that were not found while the request was read.
void NoteMore(const v1::ApplyRopeRequest& request, bool positions_read,
              core::ApplyRopeArgs args, const GivenTensor& q,
              const GivenTensor& k, core::Faults* faults) {
  if (request.layout() != v1::LAYOUT_UNSPECIFIED && positions_read &&
      (q.ok() || k.ok())) {
    // If q is missing or unreadable, its scale must not cause a second fault.
    if (!q.ok()) args.query_scale.reset();
    faults->Note(Prepare(args, q, k).status());
  } else {
    faults->Note(CheckResolves("rope", request.rope()));
  }
  if (request.positions().kind_case() == v1::Positions::KIND_NOT_SET &&
      !IsEmpty(q) && !IsEmpty(k)) {
    faults->Note(core::FieldRequired(
        "positions", "is missing; set start, starts, ids or packed"));
  }
}

// Checks a request, and prepares the rotation of its tensors.
absl::StatusOr<Rotation> PrepareRotation(const v1::ApplyRopeRequest& request,
                                         const MethodContext& context) {
  core::Faults faults;
  core::ApplyRopeArgs args;
  if (faults.Note(CheckGiven("rope", request.rope()))) {
    args.rope = CachedLookup(request.rope(), context);
  }
  faults.Note(CheckLayout(request.layout()));
  args.layout = static_cast<core::Layout>(request.layout());
  if (!request.has_q() && !request.has_k()) {
    faults.Note(core::FieldRequired(
        "q", "q and k are both missing; send at least one"));
  }
  absl::StatusOr<core::Positions> positions =
      ReadPositions(request.positions(), context.owned);
  if (faults.Note(core::Prefixed("positions", positions.status()))) {
    args.positions = *std::move(positions);
  }
  args.direction = EnumOr(core::Direction::kForward, request.direction());
  if (request.has_query_scale()) {
    args.query_scale = ReadQueryScale(request.query_scale());
  }
  args.saturation = static_cast<core::Saturation>(request.saturation());
  args.reserve = context.reserve;
  GivenTensor q, k;
  if (request.has_q()) {
    q = ReadRequiredTensor(
        "q", true, request.q(),
        context.borrowed.Find(v1::ApplyRopeRequest::kQFieldNumber));
    faults.Note(q.status());
  }
  if (request.has_k()) {
    k = ReadRequiredTensor(
        "k", true, request.k(),
        context.borrowed.Find(v1::ApplyRopeRequest::kKFieldNumber));
    faults.Note(k.status());
  }
  if (!faults.none()) {
    NoteMore(request, positions.ok(), std::move(args), q, k, &faults);
    return faults.status();
  }
  ASSIGN_OR_RETURN(core::Rotations rotations, Prepare(args, q, k));

  Rotation rotation;
  if (q.ok()) {
    rotation.push_back({v1::ApplyRopeResponse::kQFieldNumber, *std::move(q),
                        std::move(rotations.q)});
  }
  if (k.ok()) {
    rotation.push_back({v1::ApplyRopeResponse::kKFieldNumber, *std::move(k),
                        std::move(rotations.k)});
  }
  return rotation;
}

absl::Status Describe(v1::ApplyRopeRequest* call, StreamedBytes* bytes) {
  absl::Status status;
  if (call->positions().has_ids()) {
    status = bytes->AddIds("positions.ids",
                           call->mutable_positions()->mutable_ids());
  }
  if (status.ok()) status = bytes->AddTensor("q", call->has_q(), call->q());
  if (status.ok()) status = bytes->AddTensor("k", call->has_k(), call->k());
  return status;
}

}  // namespace

absl::StatusOr<TensorAnswer> AnswerApplyRope(
    const v1::ApplyRopeRequest& request, const MethodContext& context) {
  return AnswerRotation(PrepareRotation(request, context), context);
}

std::unique_ptr<CallHandler> StartApplyRopeStream(
    const MethodContext& context) {
  return std::make_unique<
      RotationStream<v1::ApplyRopeStreamRequest, Describe, PrepareRotation>>(
      context);
}

}  // namespace posenc::server
