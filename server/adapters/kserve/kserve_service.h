// Makes KServe's service for the server.

#pragma once

#include <optional>

#include "server/service/server.h"

namespace posenc::server {

// Returns nullopt in builds without the service (POSENC_KSERVE=OFF).
std::optional<ExtraServiceFactory> KserveService();

}  // namespace posenc::server
