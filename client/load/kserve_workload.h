// A workload in KServe's protocol (--protocol kserve): the same requests as
// ModelInfer of the server's models, whose names are the RPCs' and whose
// parameters are paths in their requests.

#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/load/workload.h"

namespace posenc::load {

// Turns every request into one of ModelInfer. Those whose native answers were
// learned are sent once by `ask`, which returns the response's bytes; it must
// have the native answer's tensors, bit for bit, and is the answer that others
// are compared with.
absl::Status TurnIntoInferences(
    const std::function<absl::StatusOr<std::string>(
        const Case& one, const Request& request)>& ask,
    std::vector<Case>* workload);

}  // namespace posenc::load
