// KServe's service, as the process gives it to the server.

#pragma once

#include <optional>

#include "server/server.h"

namespace posenc::server {

// Nothing in builds without it (POSENC_KSERVE=OFF).
std::optional<ExtraServiceFactory> KserveService();

}  // namespace posenc::server
