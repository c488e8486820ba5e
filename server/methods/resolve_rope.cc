// ResolveRope: what an encoding means, and how a second one differs.

#include <memory>

#include "core/error.h"
#include "core/model/compare.h"
#include "core/model/content_hash.h"
#include "core/model/preset_default.h"
#include "posenc/v1/service.pb.h"
#include "server/convert/rope.h"
#include "server/methods/answers.h"
#include "server/methods/methods.h"
#include "server/methods/rope_source.h"
#include "server/methods/unary.h"

namespace posenc::server {
absl::Status AnswerResolveRope(const v1::ResolveRopeRequest& request,
                               const MethodContext& /*context*/,
                               StopCheck /*stop*/,
                               v1::ResolveRopeResponse* response) {
  core::Faults faults;
  faults.Note(CheckHeadDim(request.head_dim()));
  faults.Note(CheckGiven("rope", request.has_rope(), request.rope()));
  if (!faults.none()) return faults.status();
  const auto resolve = [&](absl::string_view field,
                           const v1::RopeSource& source) {
    return Resolve(field, true, source, request.head_dim(),
                   core::MissingLength::kAssumeOriginal);
  };
  absl::StatusOr<core::ResolvedRope> rope = resolve("rope", request.rope());
  faults.Note(rope.status());
  absl::StatusOr<core::ResolvedRope> other = rope;
  if (request.has_compare_with()) {
    other = resolve("compare_with", request.compare_with());
    faults.Note(other.status());
  }
  if (!faults.none()) return faults.status();
  const auto unlike_class =
      core::DifferenceFromDefault(ReadRopeSource(request.rope()), *rope);
  if (unlike_class) rope->assumptions.push_back(*unlike_class);
  WriteRope(*rope, core::ContentHash(*rope), response);
  if (!request.has_compare_with()) return absl::OkStatus();
  WriteDifference(core::CompareRopes(*rope, *other),
                  response->mutable_difference());
  return absl::OkStatus();
}

std::unique_ptr<CallHandler> StartResolveRope(const MethodContext& context) {
  return MessageHandler<v1::ResolveRopeRequest, v1::ResolveRopeResponse,
                        AnswerResolveRope>::Start(context);
}

}  // namespace posenc::server
