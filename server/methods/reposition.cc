// Reposition and RepositionStream move rotated keys to other positions, or to
// another encoding.

#include "core/rope/reposition.h"

#include <memory>
#include <utility>

#include "core/error.h"
#include "posenc/v1/service.pb.h"
#include "server/convert/rope.h"
#include "server/methods/answers.h"
#include "server/methods/methods.h"
#include "server/methods/rope_source.h"
#include "server/methods/stream.h"
#include "server/methods/unary.h"

namespace posenc::server {
namespace {

using Request = v1::RepositionRequest;

// Notes faults of the encodings.
void NoteRopes(const Request& request, core::Faults* faults) {
  faults->Note(
      CheckResolves("old_rope", request.has_old_rope(), request.old_rope()));
  if (request.has_new_rope()) {
    faults->Note(CheckResolves("new_rope", true, request.new_rope()));
  }
}

// Notes faults of a request beyond those that were found while reading it.
void NoteMore(const Request& request, core::Faults* faults) {
  NoteRopes(request, faults);
  if (request.movement().target_case() == v1::Movement::TARGET_NOT_SET) {
    faults->Note(core::FieldRequired(
        "movement",
        "does not say where the keys go; set new_positions, shift or shifts"));
  }
}

}  // namespace

absl::StatusOr<TensorAnswer> AnswerReposition(const Request& request,
                                              const BorrowedTensors& borrowed,
                                              const MethodContext& context) {
  core::Faults faults;
  core::RepositionArgs args;
  if (faults.Note(
          CheckGiven("old_rope", request.has_old_rope(), request.old_rope()))) {
    args.old_rope = CachedLookup("old_rope", request.old_rope(), context);
  }
  if (request.has_new_rope() &&
      faults.Note(CheckGiven("new_rope", true, request.new_rope()))) {
    args.new_rope = CachedLookup("new_rope", request.new_rope(), context);
  }
  faults.Note(CheckLayout(request.layout()));
  args.layout = static_cast<core::Layout>(request.layout());
  args.saturation = static_cast<core::Saturation>(request.saturation());
  absl::StatusOr<InputMovement> movement = ReadMovement(request.movement());
  if (faults.Note(core::Prefixed("movement", movement.status()))) {
    args.movement = std::move(movement->movement);
  }
  absl::StatusOr<InputTensor> k = ReadRequiredTensor(
      "k", request.has_k(), request.k(), borrowed.Find(Request::kKFieldNumber));
  faults.Note(k.status());
  if (!faults.none()) {
    NoteMore(request, &faults);
    return faults.status();
  }
  absl::StatusOr<std::unique_ptr<core::RowMap>> map =
      core::PrepareReposition(args, k->view);
  if (!map.ok()) return map.status();

  TensorAnswer answer;
  answer.outputs.push_back({v1::RepositionResponse::kKFieldNumber,
                            k->view.dtype, k->view.shape, k->form});
  absl::InlinedVector<RowMapComputation::Output, 2> maps;
  maps.push_back({*std::move(map), k->pieces});
  answer.computation = std::make_unique<RowMapComputation>(
      std::move(maps), std::make_shared<InputTensor>(*std::move(k)),
      borrowed.tile_bytes());
  return answer;
}

std::unique_ptr<CallHandler> StartReposition(const MethodContext& context) {
  return StartTensorCall<Request, v1::RepositionResponse, AnswerReposition,
                         Request::kKFieldNumber>(context);
}

std::unique_ptr<CallHandler> StartRepositionStream(
    const MethodContext& context) {
  static constexpr int kSettings[] = {
      Request::kOldRopeFieldNumber, Request::kNewRopeFieldNumber,
      Request::kLayoutFieldNumber, Request::kSaturationFieldNumber};
  static constexpr int kTensors[] = {Request::kKFieldNumber};
  const auto check = [](const Request& request) {
    core::Faults faults;
    NoteRopes(request, &faults);
    faults.Note(CheckLayout(request.layout()));
    return faults.status();
  };
  return std::make_unique<StreamHandler<Request>>(
      context, kSettings, kTensors,
      StreamHandler<Request>::Functions{check, AnswerReposition});
}

}  // namespace posenc::server
