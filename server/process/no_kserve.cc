// Builds without KServe's service compile this file instead of
// server/adapters/kserve.

#include "server/adapters/kserve/kserve_service.h"

namespace posenc::server {

ExtraServiceFactory KserveService() { return {}; }

}  // namespace posenc::server
