// A workload whose tensors lie in shared memory (--shared-memory): calls name
// places instead of sending tensors.
//
// Calls at the same time must not work on the same bytes, so that each slot of
// the load (worker.h) has a place of its own, and requests of its own that name
// it. In place, results are rotated again and again; before a call that is to
// be verified, its input is written anew. Requests without tensors (ResolveRope)
// stay as they are.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/load/workload.h"
#include "posenc/client.h"

namespace posenc::load {

// Gives each slot a place in a region that is made in the server's directory,
// and the requests of every slot. Requests whose answers were learned are
// verified by their tensors. The region must outlive the calls.
// FAILED_PRECONDITION if the server shares no memory with this client.
absl::StatusOr<std::shared_ptr<SharedRegion>> ShareWorkload(
    const Client& client, bool in_place, int slots,
    std::vector<Case>* workload);

}  // namespace posenc::load
