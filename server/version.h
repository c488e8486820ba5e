// The version that GetServerInfo, `posencd --version` and errors name.

#pragma once

namespace posenc::server {

inline constexpr char kVersion[] = POSENC_VERSION;

}  // namespace posenc::server
