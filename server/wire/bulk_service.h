// Answers the bulk RPCs: those whose messages are tensors. Registered as gRPC's
// generic service, which gives a call's headers before its payload is read.

#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/time/time.h"
#include "core/runtime/pool.h"
#include "grpcpp/generic/async_generic_service.h"
#include "server/calls/rope_cache.h"
#include "server/wire/admission.h"
#include "server/wire/bulk_call.h"
#include "server/wire/deadlines.h"
#include "server/wire/response_memory.h"

namespace posenc::server {

struct BulkOptions {
  std::int64_t max_request_bytes;
  std::int64_t max_response_bytes;
  std::int64_t in_flight_bytes;
  std::size_t max_waiting;
  absl::Duration default_deadline;
  int threads;
};

class BulkService final : public grpc::CallbackGenericService {
 public:
  explicit BulkService(const BulkOptions& options);

  // From now on calls get UNAVAILABLE, kDraining.
  void StartDraining() { draining_.store(true); }

  const Admission& admission() const { return *admission_; }
  // Since the last call of this.
  std::int64_t TakeClaimedBytes() const {
    return admission_->TakeClaimedBytes();
  }

  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override;

 private:
  const BulkOptions options_;
  std::atomic<bool> draining_{false};
  RopeCache cache_;
  const std::shared_ptr<Admission> admission_;
  ResponseMemory memory_;
  Deadlines deadlines_;
  core::ComputePool pool_;  // ends first: its jobs use the others
  const BulkResources resources_;
};

}  // namespace posenc::server
