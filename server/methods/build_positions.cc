#include "server/calls/positions.h"

#include "core/position_schemes.h"
#include "server/convert/positions.h"

namespace posenc::server {

absl::StatusOr<TensorCall> PrepareBuildPositions(
    const v1::BuildPositionsRequest& request,
    v1::BuildPositionsResponse* response) {
  const core::PositionScheme scheme = ReadScheme(request);
  const absl::StatusOr<core::PositionExtents> extents =
      core::ValidateScheme(scheme);
  if (!extents.ok()) return extents.status();
  response->set_next_position(extents->next_position);
  response->set_delta(extents->delta);
  TensorCall call;
  OutputTensor& ids = call.outputs.emplace_back();
  ids.field = v1::Positions::kIdsFieldNumber;
  ids.dtype = extents->dtype;
  ids.shape = extents->shape;
  ids.within = v1::BuildPositionsResponse::kPositionsFieldNumber;
  call.parts = 1;
  call.compute = [scheme](std::int64_t, absl::Span<const core::TensorView> out,
                          StopCheck) {
    core::FillPositions(scheme, out[0]);
    return absl::OkStatus();
  };
  return call;
}

}  // namespace posenc::server
