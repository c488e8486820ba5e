// Replaces KServe's service in builds without its protocol.

#include "server/adapters/kserve/kserve_service.h"

namespace posenc::server {

ExtraServiceFactory KserveService() { return {}; }

}  // namespace posenc::server
