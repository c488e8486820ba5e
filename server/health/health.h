// The health service, grpc.health.v1, for probes and load balancers, and for
// clients that choose another server before this one drains.
//
// gRPC's own health service is not used, because it reads a whole message
// before any code of ours sees the call. Any peer could send a message of any
// size up to the server's limit, as slowly as it likes.

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
#include "server/methods/methods.h"
#include "server/scheduling/waiter.h"

namespace posenc::server {

// A caller may keep a watch open without a time limit. So the number of watches
// is limited, for the server and for one connection. (A proxy may use one
// connection for many callers.) Further watches are refused before their
// message is read (RESOURCE_EXHAUSTED, kOverloaded).
//
// Safe for many threads. Must outlive its calls.
class Health final {
 public:
  Health(std::int64_t most_watches, std::int64_t most_of_connection)
      : most_(most_watches), most_of_connection_(most_of_connection) {}

  // Sets the server's limit of watches. Watches that are open beyond a lower
  // limit are not ended.
  void SetMostWatches(std::int64_t most);

  // Sets whether a name is served from now on, and notifies its watches.
  void Set(const std::string& name, bool serving);

  // Returns the methods Check and Watch. For names that were never set, Check
  // returns NOT_FOUND, and Watch sends SERVICE_UNKNOWN until they are set.
  std::vector<Method> Methods();

 private:
  class Watch;

  // Returns nullopt if the name was never set.
  std::optional<bool> Find(const std::string& name) const;
  absl::StatusOr<std::unique_ptr<CallHandler>> StartWatch(
      std::uint64_t connection);
  void Remove(Watch* watch);
  // Returns whether the state differs from the last state that the watch sent.
  // If it does not, `waiter` is resumed when the state changes.
  bool HasNews(Watch* watch, Waiter* waiter);
  bool StopWaiting(Watch* watch);

  mutable std::mutex mutex_;
  std::int64_t most_;
  const std::int64_t most_of_connection_;
  std::map<std::string, bool> serving_;
  std::set<Watch*> watches_;  // watches that have not ended
  std::map<std::uint64_t, std::int64_t> by_connection_;  // numbers of watches
};

}  // namespace posenc::server
