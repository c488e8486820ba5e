// The RPCs as sessions.

#pragma once

#include <cstdint>
#include <memory>

#include "absl/strings/string_view.h"
#include "server/calls/rope_cache.h"
#include "server/wire/session.h"

namespace posenc::server {

struct SessionOptions {
  RopeCache* cache;
  std::int64_t max_request_bytes;
  std::int64_t max_response_bytes;
};

// An RPC of the service.
struct Method {
  absl::string_view name;  // "ApplyRope"
  bool stream;             // of requests, responses or both
  std::unique_ptr<Session> (*start)(const SessionOptions& options);
};

// Null where `name` is no RPC.
const Method* FindMethod(absl::string_view name);

}  // namespace posenc::server
