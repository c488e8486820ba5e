#include "server/base/version.h"

namespace posenc::server {

const char kVersion[] = POSENC_VERSION;

}  // namespace posenc::server
