// The health service, grpc.health.v1: what probes and load balancers ask, and
// clients that leave a server before it drains.
//
// gRPC's own reads a whole message before any code of ours sees the call: of
// any size up to the server's limit, from anybody, and for as long as it takes.

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/budget/waiter.h"
#include "server/methods/methods.h"

namespace posenc::server {

// Watches last as long as their callers like. So there may be so many, and so
// many of one connection, behind which may be the callers of a whole edge;
// others are refused at their headers (RESOURCE_EXHAUSTED, kOverloaded).
//
// Safe for many threads. Outlives its calls.
class Health final {
 public:
  Health(std::int64_t most_watches, std::int64_t most_of_connection)
      : most_(most_watches), most_of_connection_(most_of_connection) {}

  // Watches beyond a new limit are not ended.
  void SetMostWatches(std::int64_t most);

  // Sets whether a name is served from now on, and tells its watches.
  void Set(const std::string& name, bool serving);

  // Check and Watch. Names that were never set are NOT_FOUND to the one, and
  // SERVICE_UNKNOWN to the other until they are.
  std::vector<Method> Methods();

 private:
  class Watch;

  // None: the name was never set.
  std::optional<bool> Find(const std::string& name) const;
  absl::StatusOr<std::unique_ptr<CallHandler>> StartWatch(
      std::uint64_t connection);
  void Remove(Watch* watch);
  // Whether the watch has something to tell. If not, it has been told all, and
  // `waiter` is resumed when that has changed.
  bool HasNews(Watch* watch, Waiter* waiter);
  bool StopWaiting(Watch* watch);

  mutable std::mutex mutex_;
  std::int64_t most_;
  const std::int64_t most_of_connection_;
  std::map<std::string, bool> serving_;
  std::set<Watch*> watches_;                             // that have not ended
  std::map<std::uint64_t, std::int64_t> by_connection_;  // their number
};

}  // namespace posenc::server
