// Makes the factory of KServe's service.

#pragma once

#include "server/service/server.h"

namespace posenc::server {

// Returns an empty factory in a build without the service (POSENC_KSERVE=OFF).
ExtraServiceFactory KserveService();

}  // namespace posenc::server
