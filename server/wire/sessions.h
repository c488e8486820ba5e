// The bulk RPCs as sessions.

#pragma once

#include <cstdint>
#include <memory>

#include "absl/strings/string_view.h"
#include "server/calls/rope_cache.h"
#include "server/wire/session.h"

namespace posenc::server {

struct SessionOptions {
  RopeCache* cache;
  std::int64_t max_response_bytes;
};

// A bulk RPC of the service.
struct BulkMethod {
  absl::string_view name;  // "ApplyRope"
  bool stream;             // of requests, responses or both
  std::unique_ptr<BulkSession> (*start)(const SessionOptions& options);
};

// Null where `name` is no bulk RPC.
const BulkMethod* FindBulkMethod(absl::string_view name);

}  // namespace posenc::server
