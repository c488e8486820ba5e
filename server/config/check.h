// What can be wrong with a configuration whose values are right one by one.

#pragma once

#include "absl/status/status.h"
#include "server/config/config.h"

namespace posenc::server {

// Checks limits against each other, the addresses' form, and that files which
// belong together are given together and can be read. Binds nothing. The
// error's field is a key, as "--listen".
absl::Status CheckConfig(const Config& config);

}  // namespace posenc::server
