// BuildPositions makes the position ids of a batch.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>

#include "core/base/status_macros.h"
#include "core/positions/position_schemes.h"
#include "posenc/v1/service.pb.h"
#include "server/convert/positions.h"
#include "server/methods/methods.h"

namespace posenc::server {
namespace {

// A tile has kTilePositions positions and takes less than a millisecond. If an
// answer would have more than kMostTiles tiles, its tiles are larger instead,
// because the work for a tile includes a walk over all sequences before the
// tile.
constexpr std::int64_t kTilePositions = 1 << 16;
constexpr std::int64_t kMostTiles = 128;

}  // namespace

absl::StatusOr<TensorAnswer> AnswerBuildPositions(
    const v1::BuildPositionsRequest& request,
    const MethodContext& /*context*/) {
  ASSIGN_OR_RETURN(core::PositionScheme scheme, ReadScheme(request));
  ASSIGN_OR_RETURN(const core::PositionExtents extents,
                   core::ValidateScheme(scheme));
  auto response = std::make_shared<v1::BuildPositionsResponse>();
  response->set_next_position(extents.next_position);
  response->set_delta(extents.delta);

  TensorAnswer answer;
  answer.response = std::move(response);
  OutputTensor& ids = answer.outputs.emplace_back();
  ids.field = v1::Positions::kIdsFieldNumber;
  ids.dtype = extents.dtype;
  ids.shape = extents.shape;
  ids.within = v1::BuildPositionsResponse::kPositionsFieldNumber;
  const std::int64_t count = core::ElementCount(ids.shape).value_or(0);
  const std::int64_t tile = std::max(kTilePositions, count / kMostTiles + 1);
  answer.computation = std::make_unique<TileFunction>(
      (count + tile - 1) / tile,
      [scheme = std::move(scheme), count, tile,
       bytes = core::DtypeSize(ids.dtype)](
          std::int64_t i, absl::Span<const OutputBuffer> outputs,
          StopCheck stop) {
        const std::int64_t begin = i * tile;
        core::FillPositions(scheme, begin, std::min(begin + tile, count),
                            outputs[0].data() + begin * bytes,
                            [stop] { return !stop().ok(); });
        return stop();
      });
  return answer;
}

}  // namespace posenc::server
