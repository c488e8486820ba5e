#pragma once

#include "grpcpp/impl/codegen/service_type.h"

namespace posenc::conformance {

// The main function of the test servers of the table of errors. Its argument is
// READY_FILE. Listens on a free loopback port, writes the address into
// READY_FILE, and returns the exit code after SIGTERM.
int ServeUntilTerminated(int argc, char** argv, grpc::Service* service);

}  // namespace posenc::conformance
