// Answers the RPCs. Registered as gRPC's generic service, which gives a call's
// headers before its payload is read, and the payload as it came.

#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "core/runtime/pool.h"
#include "grpcpp/generic/async_generic_service.h"
#include "posenc/v1/service.grpc.pb.h"
#include "server/calls/rope_cache.h"
#include "server/wire/admission.h"
#include "server/wire/call_reactor.h"
#include "server/wire/calls_in_progress.h"
#include "server/wire/deadlines.h"
#include "server/wire/response_memory.h"

namespace posenc::server {

struct CallOptions {
  std::int64_t max_request_bytes;
  std::int64_t max_response_bytes;
  std::int64_t in_flight_bytes;
  std::size_t max_waiting;
  absl::Duration default_deadline;
  int threads;
};

class CallService final : public grpc::CallbackGenericService {
 public:
  explicit CallService(const CallOptions& options);

  // From now on calls get UNAVAILABLE, kDraining.
  void StartDraining() { draining_.store(true); }

  // Every call's response has been written. False where some have not after
  // `timeout`.
  bool AwaitNoCalls(absl::Duration timeout) {
    return calls_.AwaitNone(timeout);
  }

  const Admission& admission() const { return *admission_; }
  // Since the last call of this.
  std::int64_t TakeClaimedBytes() const {
    return admission_->TakeClaimedBytes();
  }

  // Gives memory that is kept for responses back to the kernel.
  void ReturnKeptMemory() { memory_.ReturnKept(); }

  // To be registered as a service too: reflection lists those, and no generic
  // ones. Lives as long as this.
  grpc::Service* registered() { return &registered_; }

  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override;

 private:
  using Rpcs = v1::PositionalEncodingService;

  // gRPC forgets a service all of whose methods are generic. One is registered
  // therefore, as a stream of raw messages, which generic calls are as well.
  class Registered final
      : public Rpcs::WithRawCallbackMethod_ApplyRopeStream<Rpcs::Service> {
   public:
    explicit Registered(CallService* calls);
    grpc::ServerGenericBidiReactor* ApplyRopeStream(
        grpc::CallbackServerContext* context) override;

   private:
    CallService* const calls_;
  };

  grpc::ServerGenericBidiReactor* Start(absl::string_view name,
                                        grpc::CallbackServerContext* context);

  const CallOptions options_;
  CallsInProgress calls_;
  Registered registered_;
  std::atomic<bool> draining_{false};
  RopeCache cache_;
  const std::shared_ptr<Admission> admission_;
  ResponseMemory memory_;
  Deadlines deadlines_;
  core::ComputePool pool_;  // ends first: its jobs use the others
  const CallResources resources_;
};

}  // namespace posenc::server
