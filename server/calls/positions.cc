#include "server/calls/positions.h"

#include "absl/status/statusor.h"
#include "core/position_schemes.h"
#include "server/calls/call.h"
#include "server/convert/positions.h"

namespace posenc::server {

absl::Status AnswerBuildPositions(const v1::BuildPositionsRequest& request,
                                  std::int64_t limit,
                                  v1::BuildPositionsResponse* response) {
  const core::PositionScheme scheme = ReadScheme(request);
  const absl::StatusOr<core::PositionExtents> extents =
      core::ValidateScheme(scheme);
  if (!extents.ok()) return extents.status();
  // Not yet the few bytes of the fields around it, which the final check adds.
  const absl::Status size = CheckResponse(
      TensorFieldBytes(extents->dtype, extents->shape, TensorForm::kData),
      limit);
  if (!size.ok()) return size;
  core::FillPositions(
      scheme, AllocateTensor(extents->dtype, extents->shape,
                             response->mutable_positions()->mutable_ids()));
  response->set_next_position(extents->next_position);
  response->set_delta(extents->delta);
  return absl::OkStatus();
}

}  // namespace posenc::server
