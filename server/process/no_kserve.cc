// Replaces KServe's service in builds without its protocol.

#include "server/adapters/kserve/kserve_service.h"

namespace posenc::server {

std::optional<ExtraServiceFactory> KserveService() { return std::nullopt; }

}  // namespace posenc::server
