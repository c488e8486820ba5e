// BuildPositions makes the position ids of a batch.

#include <memory>

#include "core/positions/position_schemes.h"
#include "posenc/v1/service.pb.h"
#include "server/convert/positions.h"
#include "server/methods/methods.h"

namespace posenc::server {
namespace {

using Response = v1::BuildPositionsResponse;

}  // namespace

absl::StatusOr<TensorAnswer> AnswerBuildPositions(
    const v1::BuildPositionsRequest& request, const MethodContext& /*context*/,
    Response* response) {
  const absl::StatusOr<core::PositionScheme> scheme = ReadScheme(request);
  if (!scheme.ok()) return scheme.status();
  const absl::StatusOr<core::PositionExtents> extents =
      core::ValidateScheme(*scheme);
  if (!extents.ok()) return extents.status();
  response->set_next_position(extents->next_position);
  response->set_delta(extents->delta);

  TensorAnswer answer;
  OutputTensor& ids = answer.outputs.emplace_back();
  ids.field = v1::Positions::kIdsFieldNumber;
  ids.dtype = extents->dtype;
  ids.shape = extents->shape;
  ids.within = Response::kPositionsFieldNumber;
  answer.computation = std::make_unique<TileFunction>(
      1, [scheme = *scheme, dtype = ids.dtype, shape = ids.shape](
             std::int64_t /*tile*/, absl::Span<const OutputBuffer> outputs,
             StopCheck) {
        core::FillPositions(scheme, {dtype, shape, outputs[0].data()});
        return absl::OkStatus();
      });
  return answer;
}

}  // namespace posenc::server
