// Whether the process may have the threads that a server starts.

#pragma once

#include "absl/status/status.h"

namespace posenc::server {

// How many threads a server has that computes with so many, the RPC library's
// own included.
int ThreadsOf(int compute_threads);

// Starts so many threads, all there at once, and ends them. RESOURCE_EXHAUSTED
// if they are not to be had: the RPC library would end the process without a
// word that helps.
absl::Status CheckThreads(int count);

}  // namespace posenc::server
