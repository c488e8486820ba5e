// Makes KServe's service for the server.

#pragma once

#include "server/service/server.h"

namespace posenc::server {

// In a build without the service (POSENC_KSERVE=OFF), returns an empty factory.
ExtraServiceFactory KserveService();

}  // namespace posenc::server
