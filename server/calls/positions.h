// BuildPositions.

#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "posenc/v1/service.pb.h"

namespace posenc::server {

absl::Status AnswerBuildPositions(const v1::BuildPositionsRequest& request,
                                  std::int64_t limit,
                                  v1::BuildPositionsResponse* response);

}  // namespace posenc::server
