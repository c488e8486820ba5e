#include "client/flags/grpc_lines.h"

#include <cstdlib>

#include "posenc/compat.h"

namespace posenc::flags {

void SilenceGrpc() {
  if (std::getenv("GRPC_VERBOSITY") != nullptr) return;
  compat::SetLog(nullptr);
}

}  // namespace posenc::flags
