#include "client/flags/grpc_lines.h"

#include <cstdlib>

#include "grpc/support/log.h"

namespace posenc::flags {

void SilenceGrpc() {
  if (std::getenv("GRPC_VERBOSITY") != nullptr) return;
  gpr_set_log_function([](gpr_log_func_args*) {});
}

}  // namespace posenc::flags
