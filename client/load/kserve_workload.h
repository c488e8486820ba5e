// A workload in KServe's protocol (--protocol kserve): the same requests as
// ModelInfer. The server's models have the names of the RPCs, and their
// parameters are paths in the RPCs' requests.

#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/load/workload.h"

namespace posenc::load {

// Turns every request into one of ModelInfer. A request with a learned native
// answer is sent once by `ask`, which returns the response's bytes. The
// response must have the native answer's tensors, bit for bit; later answers
// are compared with it.
absl::Status TurnIntoInferences(
    const std::function<absl::StatusOr<std::string>(
        const Case& one, const Request& request)>& ask,
    std::vector<Case>* workload);

}  // namespace posenc::load
