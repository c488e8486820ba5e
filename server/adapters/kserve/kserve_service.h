// Makes KServe's service for the server.

#pragma once

#include "server/service/server.h"

namespace posenc::server {

// Builds without the service (POSENC_KSERVE=OFF) return an empty factory.
ExtraServiceFactory KserveService();

}  // namespace posenc::server
