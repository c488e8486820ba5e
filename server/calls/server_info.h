// GetServerInfo.

#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "posenc/v1/service.pb.h"

namespace posenc::server {

absl::Status AnswerGetServerInfo(std::int64_t max_request_bytes,
                                 std::int64_t max_response_bytes,
                                 v1::GetServerInfoResponse* response);

}  // namespace posenc::server
