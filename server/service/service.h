// Finds the method and the caller of each call that arrives from gRPC, and owns
// the resources that all calls share. The coroutine in server/call/call.cc
// serves each call.
//
// The calls come through gRPC's generic service, for the reasons in
// docs/adr/0001.

#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/call/call.h"
#include "server/call/open_calls.h"
#include "server/convert/rope_cache.h"
#include "server/methods/methods.h"
#include "server/metrics/server_status.h"
#include "server/scheduling/admission.h"
#include "server/scheduling/limits.h"
#include "server/service/credentials.h"
#include "server/shared_memory/shared_files.h"
#include "server/transport/connection_limits.h"

namespace posenc::server {

class RpcService final : public CallService {
 public:
  // `limits` and `connections` have their defaults filled in. `credentials`
  // finds callers by their tokens. `shared_files` has the files that calls may
  // name; it may be null. The objects of all pointers must outlive this object.
  RpcService(const Limits& limits, const ConnectionLimits& connections,
             std::vector<CallObserver*> observers,
             const Credentials* credentials, SharedFiles* shared_files,
             std::vector<Method> methods);

  // Sets the function that ends the connection of a peer with far more open
  // calls than allowed. Must be called before the first call arrives.
  void EndConnectionsBy(std::function<void(absl::string_view peer)> end) {
    end_connection_ = std::move(end);
  }

  // Applies the limits that may change while calls are in progress: the
  // budget, the numbers of waiting calls, and the default deadline.
  void SetLimits(const Limits& limits);

  // Makes all later calls fail with UNAVAILABLE, kDraining, except exempt
  // calls.
  void StartDraining() { draining_.store(true); }

  // Waits until every call has ended, except exempt and refused calls. Returns
  // false if this takes longer than `timeout`.
  bool AwaitNoCalls(absl::Duration timeout) const;

  const Admission& admission() const { return *resources_.admission; }

  // Sets the fields of `status` that this service knows.
  void FillIn(ServerStatus* status) const;

  // Must be called about once a second, on one thread. Every tenth call returns
  // memory to the kernel, if RPCs have not needed it since the last return. If
  // memory were returned more often, bursts of RPCs would cause page faults
  // again and again.
  void ReturnUnneededMemory();

  // These functions implement CallService.
  CallResources* resources() override { return &resources_; }
  absl::Status Route(const CallHeaders& headers, CallSpec* spec,
                     OpenCalls::Slot* slot,
                     std::unique_ptr<CallHandler>* handler) override;

 private:
  // Finds the caller by its token, and the caller's limits.
  absl::Status Identify(const CallHeaders& headers, CallSpec* spec) const;
  // Returns the size of the resident memory that holds no data.
  std::size_t IdleMemory() const;

  const std::vector<Method> methods_;  // a method's number is its index here
  absl::flat_hash_map<std::string, int> by_path_;
  const std::int64_t max_metadata_bytes_;
  const Credentials* const credentials_;
  SharedFiles* const shared_files_;
  OpenCalls open_calls_;
  std::function<void(absl::string_view peer)> end_connection_;
  std::atomic<bool> draining_{false};
  RopeCache cache_;
  // State of ReturnUnneededMemory().
  int looks_ = 0;
  std::size_t idle_ = 0;            // IdleMemory() after the last return
  std::size_t used_at_return_ = 0;  // UsedMemory() just before that return
  std::atomic<std::int64_t> bytes_per_token_;
  const std::size_t other_at_start_;  // resident bytes outside the heap
  // This member is destroyed first, because the work of its threads uses the
  // other members.
  CallResources resources_;
};

}  // namespace posenc::server
