// Reads the positions and the position schemes of requests.

#pragma once

#include "absl/status/statusor.h"
#include "core/positions/position_schemes.h"
#include "core/positions/positions.h"
#include "posenc/v1/service.pb.h"
#include "posenc/v1/tensor.pb.h"
#include "server/convert/tensor.h"

namespace posenc::server {

// The ids of the positions point into the message, or into `owned`.
absl::StatusOr<core::Positions> ReadPositions(const v1::Positions& positions,
                                              OwnedElements* owned);

// Reads the position scheme. For `vision`, also resolves the tower of its
// encoding. Errors name fields of the request.
absl::StatusOr<core::PositionScheme> ReadScheme(
    const v1::BuildPositionsRequest& request);

}  // namespace posenc::server
