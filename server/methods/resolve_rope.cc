// ResolveRope: what an encoding means, and how a second one differs.

#include <memory>

#include "core/model/compare.h"
#include "core/model/content_hash.h"
#include "posenc/v1/service.pb.h"
#include "server/convert/rope.h"
#include "server/methods/methods.h"
#include "server/methods/rope_source.h"
#include "server/methods/unary.h"

namespace posenc::server {
namespace {

absl::Status Answer(const v1::ResolveRopeRequest& request,
                    const MethodContext& /*context*/, StopCheck /*stop*/,
                    v1::ResolveRopeResponse* response) {
  const absl::Status valid = CheckHeadDim(request.head_dim());
  if (!valid.ok()) return valid;
  constexpr auto kAssume = core::MissingLength::kAssumeOriginal;
  absl::StatusOr<core::ResolvedRope> rope = Resolve(
      "rope", request.has_rope(), request.rope(), request.head_dim(), kAssume);
  if (!rope.ok()) return rope.status();
  WriteRope(*rope, core::ContentHash(*rope), response);
  if (!request.has_compare_with()) return absl::OkStatus();
  absl::StatusOr<core::ResolvedRope> other =
      Resolve("compare_with", true, request.compare_with(), request.head_dim(),
              kAssume);
  if (!other.ok()) return other.status();
  WriteDifference(core::CompareRopes(*rope, *other),
                  response->mutable_difference());
  return absl::OkStatus();
}

}  // namespace

std::unique_ptr<CallHandler> StartResolveRope(const MethodContext& context) {
  return MessageHandler<v1::ResolveRopeRequest, v1::ResolveRopeResponse,
                        Answer>::Start(context);
}

}  // namespace posenc::server
