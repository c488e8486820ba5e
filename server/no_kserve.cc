// Replaces KServe's service in builds without its protocol.

#include "server/kserve/kserve_service.h"

namespace posenc::server {

std::optional<ExtraServiceFactory> KserveService() { return std::nullopt; }

}  // namespace posenc::server
