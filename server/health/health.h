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

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/rpc/small_call.h"

namespace posenc::server {

// Watches last as long as their callers like. So there may be so many, and so
// many of one connection, behind which may be the callers of a whole edge;
// others are refused at their headers (RESOURCE_EXHAUSTED, kOverloaded).
//
// Safe for many threads. Outlives its calls.
class Health final : public SmallService {
 public:
  Health(std::int64_t most_watches, std::int64_t most_of_connection)
      : most_(most_watches), most_of_connection_(most_of_connection) {}

  // Watches beyond a new limit are not ended.
  void SetMostWatches(std::int64_t most);

  // What a name is, from now on. Tells those who watch it.
  void Set(const std::string& name, bool serving);

  // Check and Watch. Names that were never set are NOT_FOUND to the one, and
  // SERVICE_UNKNOWN to the other until they are.
  absl::StatusOr<std::shared_ptr<SmallCall>> Make(
      absl::string_view path, std::uint64_t connection) override;

 private:
  class CheckCall;
  class WatchCall;

  // None: the name was never set.
  std::optional<bool> Find(const std::string& name) const;
  absl::StatusOr<std::shared_ptr<SmallCall>> MakeWatch(
      std::uint64_t connection);
  void Add(WatchCall* watch);
  void Remove(WatchCall* watch, std::uint64_t connection);

  mutable std::mutex mutex_;
  std::int64_t most_;
  const std::int64_t most_of_connection_;
  std::map<std::string, bool> serving_;
  // Watches that have not ended: their number, also by connection, and those
  // whose request has come.
  std::int64_t made_ = 0;
  std::map<std::uint64_t, std::int64_t> made_by_;
  std::set<WatchCall*> watches_;
};

}  // namespace posenc::server
