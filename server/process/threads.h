// Checks whether the process may start the threads that a server needs.

#pragma once

#include "absl/status/status.h"

namespace posenc::server {

// Returns the number of threads of a server with this number of compute
// threads, including gRPC's threads.
int ThreadsOf(int compute_threads);

// Starts `count` threads, all at the same time, and ends them.
// Returns RESOURCE_EXHAUSTED if not all can be started. Without this check,
// gRPC would end the process without a helpful message.
absl::Status CheckThreads(int count);

}  // namespace posenc::server
