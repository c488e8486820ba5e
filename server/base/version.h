// The version that GetServerInfo, `posencd --version` and errors show.

#pragma once

namespace posenc::server {

extern const char kVersion[];

}  // namespace posenc::server
