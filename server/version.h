// The version that GetServerInfo, `posencd --version` and errors name.

#pragma once

namespace posenc::server {

extern const char kVersion[];

}  // namespace posenc::server
