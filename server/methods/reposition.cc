// Reposition and RepositionStream: move rotated keys to other positions, or to
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

constexpr int kTensorFields[] = {Request::kKFieldNumber};

// Notes what is wrong with a request beside the faults that were found while
// it was read.
void NoteMore(const Request& request, core::Faults* faults) {
  faults->Note(
      CheckResolves("old_rope", request.has_old_rope(), request.old_rope()));
  if (request.has_new_rope()) {
    faults->Note(CheckResolves("new_rope", true, request.new_rope()));
  }
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
    args.old_rope = CachedLookup(request.old_rope(), context.cache);
  }
  if (request.has_new_rope() &&
      faults.Note(CheckGiven("new_rope", true, request.new_rope()))) {
    args.new_rope = CachedLookup(request.new_rope(), context.cache);
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

namespace {

class RepositionStreamHandler final : public StreamHandler<Request> {
 public:
  explicit RepositionStreamHandler(const MethodContext& context)
      : StreamHandler(context, kTensorFields) {}

 private:
  void CopySettings(const Request& from, Request* to) override {
    if (from.has_old_rope()) *to->mutable_old_rope() = from.old_rope();
    if (from.has_new_rope()) *to->mutable_new_rope() = from.new_rope();
    to->set_layout(from.layout());
    to->set_saturation(from.saturation());
  }
  absl::Status RefuseSettings(const Request& request) override {
    if (request.has_old_rope()) return NotFirst("old_rope");
    if (request.has_new_rope()) return NotFirst("new_rope");
    if (request.layout() != v1::LAYOUT_UNSPECIFIED) return NotFirst("layout");
    if (request.saturation() != v1::SATURATION_UNSPECIFIED) {
      return NotFirst("saturation");
    }
    return absl::OkStatus();
  }
  bool HasTensor(const Request& request) override { return request.has_k(); }
  absl::Status CheckSettings(const Request& request) override {
    core::Faults faults;
    faults.Note(
        CheckResolves("old_rope", request.has_old_rope(), request.old_rope()));
    if (request.has_new_rope()) {
      faults.Note(CheckResolves("new_rope", true, request.new_rope()));
    }
    faults.Note(CheckLayout(request.layout()));
    return faults.status();
  }
  absl::StatusOr<TensorAnswer> Answer(
      const Request& request, const BorrowedTensors& borrowed) override {
    return AnswerReposition(request, borrowed, context_);
  }
};

}  // namespace

std::unique_ptr<CallHandler> StartReposition(const MethodContext& context) {
  return TensorHandler<Request, v1::RepositionResponse, AnswerReposition,
                       Request::kKFieldNumber>::Start(context);
}

std::unique_ptr<CallHandler> StartRepositionStream(
    const MethodContext& context) {
  return std::make_unique<RepositionStreamHandler>(context);
}

}  // namespace posenc::server
