// Reposition and RepositionStream move rotated keys to other positions, or to
// another encoding.

#include "core/rotation/reposition.h"

#include <memory>
#include <utility>

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "posenc/v1/service.pb.h"
#include "server/convert/rope.h"
#include "server/convert/tensor.h"
#include "server/methods/methods.h"
#include "server/methods/rope_source.h"
#include "server/methods/stream.h"

namespace posenc::server {
namespace {

// Adds the faults that were not found while the request was read.
void NoteMore(const v1::RepositionRequest& request, core::Faults* faults) {
  // If cache.model_layers is set, it chooses the layers, and the sources name
  // no layer. So the sources cannot be resolved here.
  const bool resolves = request.cache().model_layers().empty();
  if (resolves) faults->Note(CheckResolves("old_rope", request.old_rope()));
  if (resolves && request.has_new_rope()) {
    faults->Note(CheckResolves("new_rope", request.new_rope()));
  }
  if (request.movement().target_case() == v1::Movement::TARGET_NOT_SET) {
    faults->Note(core::FieldRequired(
        "movement",
        "does not say where the keys go; set new_positions or shift"));
  }
}

// Checks a request, and prepares the rotation of its tensor.
absl::StatusOr<Rotation> PrepareRotation(const v1::RepositionRequest& request,
                                         const MethodContext& context) {
  core::Faults faults;
  core::RepositionArgs args;
  const auto look_up = [&](absl::string_view field,
                           const v1::RopeSource& source, core::RopeLookup* rope,
                           core::LayerLookup* layers) {
    if (!faults.Note(CheckGiven(field, source))) return;
    if (request.cache().model_layers().empty()) {
      *rope = CachedLookup(source, context);
      return;
    }
    absl::StatusOr<core::LayerLookup> found = CachedLayers(
        field, source, request.cache().model_layers_size(), context);
    if (faults.Note(found.status())) *layers = *std::move(found);
  };
  look_up("old_rope", request.old_rope(), &args.old_rope, &args.old_layers);
  if (request.has_new_rope()) {
    look_up("new_rope", request.new_rope(), &args.new_rope, &args.new_layers);
  }
  if (request.has_cache()) {
    absl::StatusOr<core::CacheLayout> cache =
        ReadCacheLayout(request.cache(), context.owned);
    if (faults.Note(core::Prefixed("cache", cache.status()))) {
      args.cache = *std::move(cache);
    }
    if (request.layout() != v1::LAYOUT_UNSPECIFIED) {
      faults.Note(core::FieldInvalid(
          "layout",
          "beside cache: the dimensions of cache say the order; unset it"));
    }
  } else {
    faults.Note(CheckLayout(request.layout()));
  }
  args.layout = static_cast<core::Layout>(request.layout());
  args.saturation = static_cast<core::Saturation>(request.saturation());
  args.block_format = static_cast<core::BlockFormat>(request.block_format());
  args.reserve = context.reserve;
  absl::StatusOr<core::Movement> movement =
      ReadMovement(request.movement(), context.owned);
  if (faults.Note(core::Prefixed("movement", movement.status()))) {
    args.movement = *std::move(movement);
  }
  absl::StatusOr<InputTensor> k = ReadRequiredTensor(
      "k", request.has_k(), request.k(),
      context.borrowed.Find(v1::RepositionRequest::kKFieldNumber));
  faults.Note(k.status());
  if (!faults.none()) {
    NoteMore(request, &faults);
    return faults.status();
  }
  ASSIGN_OR_RETURN(std::unique_ptr<core::RowMap> map,
                   core::PrepareReposition(args, k->view));

  Rotation rotation;
  rotation.push_back(
      {v1::RepositionResponse::kKFieldNumber, *std::move(k), std::move(map)});
  return rotation;
}

absl::Status Describe(v1::RepositionRequest* call, StreamedBytes* bytes) {
  absl::Status status;
  if (call->movement().old_positions().has_ids()) {
    status = bytes->AddIds(
        "movement.old_positions.ids",
        call->mutable_movement()->mutable_old_positions()->mutable_ids());
  }
  if (status.ok() && call->movement().new_positions().has_ids()) {
    status = bytes->AddIds(
        "movement.new_positions.ids",
        call->mutable_movement()->mutable_new_positions()->mutable_ids());
  }
  if (status.ok() && call->movement().has_shifts()) {
    status = bytes->AddIds("movement.shifts",
                           call->mutable_movement()->mutable_shifts());
  }
  if (status.ok()) status = bytes->AddTensor("k", call->has_k(), call->k());
  return status;
}

}  // namespace

absl::StatusOr<TensorAnswer> AnswerReposition(
    const v1::RepositionRequest& request, const MethodContext& context) {
  return AnswerRotation(PrepareRotation(request, context), context);
}

std::unique_ptr<CallHandler> StartRepositionStream(
    const MethodContext& context) {
  return std::make_unique<
      RotationStream<v1::RepositionStreamRequest, Describe, PrepareRotation>>(
      context);
}

}  // namespace posenc::server
