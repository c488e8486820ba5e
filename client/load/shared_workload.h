// A workload with tensors in shared memory (--shared-memory): calls name places
// instead of sending tensors.
//
// Concurrent calls must not work on the same bytes, so each slot of the load
// (worker.h) has its own place, and its own requests that name it. In place,
// results are rotated again and again; before a call that is verified, its
// input is written anew. Requests without tensors (ResolveRope) are not
// changed.

#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "client/load/workload.h"
#include "posenc/client.h"

namespace posenc::load {

// Makes a region in the server's directory, with a place for each slot, and the
// requests of every slot. Requests with learned answers are verified by their
// tensors. The region must outlive the calls. FAILED_PRECONDITION if the server
// shares no memory with this client.
absl::StatusOr<std::shared_ptr<SharedRegion>> ShareWorkload(
    const Client& client, bool in_place, int slots,
    std::vector<Case>* workload);

}  // namespace posenc::load
