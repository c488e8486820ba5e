// Sizes of a requested table, as far as the request determines them.

#pragma once

#include <cstdint>

#include "posenc/v1/service.pb.h"

namespace posenc {

// Returns the number of rows of the requested table; 0 if the request does not
// determine it. Correct for every request that the server accepts.
std::int64_t RowsOf(const v1::BuildTableRequest& request);

// Returns the size in bytes of each tensor of that table; -1 if only the server
// knows it, as for presets, configurations and requests that it refuses.
std::int64_t TableBytes(const v1::BuildTableRequest& request);

}  // namespace posenc
