// The version in GetServerInfo, `posencd --version` and errors.

#pragma once

namespace posenc::server {

extern const char kVersion[];

}  // namespace posenc::server
