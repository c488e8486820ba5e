// Sizes of a requested table, as far as the request determines them.

#pragma once

#include <cstdint>

#include "posenc/v1/service.pb.h"

namespace posenc {

// Returns the number of rows of the requested table; 0 if the request does not
// determine it. Correct for every request that the server accepts.
std::int64_t RowsOf(const v1::BuildTableRequest& request);

// Returns the size in bytes of each tensor of the requested table; -1 if the
// request does not determine it (a preset or a configuration), or is not valid.
std::int64_t TableBytes(const v1::BuildTableRequest& request);

}  // namespace posenc
