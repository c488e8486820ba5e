// Compiled instead of server/adapters/kserve in builds without KServe's
// service.

#include "server/adapters/kserve/kserve_service.h"

namespace posenc::server {

ExtraServiceFactory KserveService() { return {}; }

}  // namespace posenc::server
