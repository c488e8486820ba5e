// The RPCs as gRPC sees them: a service that starts a Call for each call, and a
// SmallCall for those of health and reflection.
//
// It gets its calls from a CallQueue, as gRPC's generic service, which shows a
// call's headers before its payload is read (so that the call can claim memory,
// or be refused) and gives the payload as it came (so that tensors need no
// copy). See docs/adr/0001.

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
#include "core/runtime/pool.h"
#include "server/auth/token_file.h"
#include "server/budget/admission.h"
#include "server/budget/calls_in_progress.h"
#include "server/budget/deadlines.h"
#include "server/budget/limits.h"
#include "server/listen/connection_limits.h"
#include "server/memory/response_buffers.h"
#include "server/methods/methods.h"
#include "server/methods/rope_cache.h"
#include "server/metrics/server_status.h"
#include "server/rpc/call.h"
#include "server/rpc/call_queue.h"
#include "server/rpc/open_calls.h"
#include "server/rpc/small_call.h"
#include "server/shared/shared_files.h"

namespace posenc::server {

class RpcService final : public CallQueue::Service {
 public:
  // limits, connections: with defaults filled in.
  // observer, and tokens that callers must show: outlive this; either may be
  // null.
  // shared_files: that calls may name; outlives this, may be null.
  // more: methods beside the contract's.
  RpcService(const Limits& limits, const ConnectionLimits& connections,
             CallObserver* observer, const TokenFile* tokens,
             SharedFiles* shared_files, std::vector<Method> more);

  // A service beside the contract's, whose calls are no calls in progress: they
  // are answered during a drain, too. Before the first call; outlives this.
  void Add(SmallService* service) { small_services_.push_back(service); }

  // `end` ends the connection of a peer that has far more calls open than it
  // may. Before the first call.
  void EndConnectionsBy(std::function<void(absl::string_view peer)> end) {
    end_connection_ = std::move(end);
  }

  // Takes over what may change while calls are in progress: the budget, the
  // numbers that may wait, and the default deadline.
  void SetLimits(const Limits& limits);

  // From now on calls get UNAVAILABLE, kDraining.
  void StartDraining() { draining_.store(true); }

  // Waits until every call's response has been written. False if some have not
  // after `timeout`.
  bool AwaitNoCalls(absl::Duration timeout) {
    return calls_.AwaitNone(timeout);
  }

  const Admission& admission() const { return *admission_; }
  const Transfers& transfers() const { return transfers_; }
  const Turns& turns() const { return turns_; }
  const RopeCache& cache() const { return cache_; }
  const ResponseBuffers& buffers() const { return buffers_; }
  std::int64_t calls() const { return calls_.count(); }

  // Fills in what it knows of.
  void Tell(ServerStatus* status) const;

  // Looks how much memory calls hold, and returns to the kernel what they have
  // not needed for ten looks. To be called every second or so, by one thread:
  // if it returned memory sooner, bursts of calls would pay for its page faults
  // again and again.
  void ReturnUnneededMemory();

  void Begin(PeerStream* stream) override;
  void Gone(const PeerStream& stream) override;
  void Refused(std::chrono::nanoseconds spent) override;

 private:
  // An error that many calls may get, made once: past capacity, most of the
  // work is refusing.
  struct Answer {
    explicit Answer(absl::Status error);
    const absl::Status status;
    const CallEnding ending;
    const std::string reason;
  };
  // Why the call of an RPC is answered without being read; null if it is not.
  const Answer* Refuse(const CallSpec& spec,
                       const Call::Arrival& arrival) const;
  void Send(const Answer& answer, const CallSpec& spec,
            PeerStream* stream) const;
  // Tells the observer of a call that is answered so.
  void Observe(const Answer& answer, const CallSpec& spec,
               const CallHeaders& headers) const;
  // Whether the call is one of more than its connection may have open. Then it
  // has ended.
  bool IsTooMany(PeerStream* stream, const CallSpec& spec);

  // For Transfers.
  std::int64_t MeasureHeld() const;
  // Resident memory that nothing is in.
  std::size_t IdleMemory() const;
  void ReturnExcess(std::int64_t held);

  // Who calls, and what that allows.
  absl::Status Identify(const CallHeaders& headers, CallSpec* spec) const;
  void BeginSmall(PeerStream* stream, CallSpec spec) const;
  CallSharing SharingOf(const CallHeaders& headers) const;

  const std::vector<Method> methods_;  // a method's number is its place here
  absl::flat_hash_map<std::string, int> by_path_;
  const Answer draining_answer_, too_many_calls_, too_many_inferences_;
  const Answer gone_{absl::CancelledError("the peer is gone")};
  const Limits limits_;
  const std::int64_t max_metadata_bytes_;
  const TokenFile* const tokens_;
  SharedFiles* const shared_files_;
  OpenCalls open_calls_;
  std::function<void(absl::string_view peer)> end_connection_;
  CallsInProgress calls_;
  std::atomic<bool> draining_{false};
  RopeCache cache_;
  // Shared with responses that a client in this process still holds.
  const std::shared_ptr<Admission> admission_;
  ResponseBuffers buffers_;
  // Of ReturnUnneededMemory().
  int looks_ = 0;
  std::int64_t most_held_ = 0;      // at these looks
  std::size_t idle_ = 0;            // what was left after the last return
  std::size_t used_at_return_ = 0;  // just before that
  CallerBudgets callers_;
  std::atomic<std::int64_t> bytes_per_token_;
  MessageSizes sizes_;
  Deadlines deadlines_;
  Turns turns_;
  const std::size_t used_at_start_;
  const std::size_t other_at_start_;  // resident, but not of the heap
  std::size_t excess_freed_ = 0;      // used by the thread of Transfers
  Transfers transfers_;
  // Destroyed first, which ends its threads: their work uses the others.
  core::ComputePool pool_;
  const CallResources resources_;
  std::vector<SmallService*> small_services_;
};

}  // namespace posenc::server
