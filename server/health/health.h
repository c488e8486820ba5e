// The health service, grpc.health.v1: what probes and load balancers ask, and
// clients that leave a server before it drains.
//
// gRPC's own reads a whole message before any code of ours sees the call: of
// any size up to the server's limit, from anybody, and for as long as it takes.

#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>

#include "absl/strings/string_view.h"
#include "server/rpc/small_call.h"

namespace posenc::server {

// Safe for many threads. Outlives its calls.
class Health final : public SmallService {
 public:
  // What a name is, from now on. Tells those who watch it.
  void Set(const std::string& name, bool serving);

  // Check and Watch. Names that were never set are NOT_FOUND to the one, and
  // SERVICE_UNKNOWN to the other until they are.
  std::shared_ptr<SmallCall> Make(absl::string_view path) override;

 private:
  class CheckCall;
  class WatchCall;

  // None: the name was never set.
  std::optional<bool> Find(const std::string& name) const;
  void Add(WatchCall* watch);
  void Remove(WatchCall* watch);

  mutable std::mutex mutex_;
  std::map<std::string, bool> serving_;
  std::set<WatchCall*> watches_;  // that have not ended
};

}  // namespace posenc::server
