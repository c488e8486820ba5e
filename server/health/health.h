// Implements the health service, grpc.health.v1. Probes and load balancers use
// it, and clients that choose another server before this server drains.
//
// gRPC's own health service is not used, because it reads a whole message
// before any code of ours sees the call. Any peer could send this service a
// message of any size up to the server's limit, at any speed.

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
// is limited, for the server and for each connection. All callers of a proxy
// may share one connection. Further watches are refused before their message is
// read (RESOURCE_EXHAUSTED, kOverloaded).
//
// Thread-safe. The object must outlive its calls.
class Health final {
 public:
  Health(std::int64_t most_watches, std::int64_t most_of_connection)
      : most_(most_watches), most_of_connection_(most_of_connection) {}

  // Sets the server's limit of watches. A lower limit does not end open
  // watches.
  void SetMostWatches(std::int64_t most);

  // Sets whether a name is served from now on, and notifies the name's watches.
  void Set(const std::string& name, bool serving);

  // Returns the methods Check and Watch. For a name that was never set, Check
  // returns NOT_FOUND, and Watch sends SERVICE_UNKNOWN until the name is set.
  std::vector<Method> Methods();

 private:
  class Watch;

  // Returns nullopt if the name was never set.
  std::optional<bool> Find(const std::string& name) const;
  absl::StatusOr<std::unique_ptr<CallHandler>> StartWatch(
      std::uint64_t connection);
  void Remove(Watch* watch);
  // Returns whether the state differs from the last state that the watch sent.
  // If the states are equal, `waiter` is resumed when the state changes.
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
