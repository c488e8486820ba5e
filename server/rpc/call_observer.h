// Who wants to know of calls: metrics, the call log, traces.

#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "grpcpp/support/status.h"

namespace posenc::server {

// A call that is over. Its views are valid during CallObserver::Finished()
// only.
struct CallRecord {
  // "posenc.v1.PositionalEncodingService" and "ApplyRope"; "" for an RPC that
  // there is not.
  absl::string_view service;
  absl::string_view method;
  bool stream = false;
  grpc::StatusCode code = grpc::StatusCode::OK;
  // "ERROR_REASON_OVERLOADED" and the like; "" without error details.
  absl::string_view reason;
  absl::string_view message;  // the status's

  absl::Time started;        // when its headers came
  absl::Duration handling;   // from there until gRPC was done with it
  absl::Duration waited;     // of it: for its turn and for memory
  absl::Duration computing;  // of it: computations, streams' summed up

  std::int64_t messages_received = 0, messages_sent = 0;
  std::int64_t bytes_received = 0, bytes_sent = 0;

  // What the peer may choose is bounded in length but not escaped.
  absl::string_view peer;         // "ipv4:10.0.0.7:40123"
  absl::string_view caller;       // the token's name; "" without tokens
  absl::string_view request_id;   // metadata x-request-id; "" if none
  absl::string_view traceparent;  // metadata traceparent (W3C); "" if none
};

// Safe for many threads. Called on gRPC's threads: must return in microseconds
// and take no lock for longer.
class CallObserver {
 public:
  virtual ~CallObserver() = default;
  // No two services have methods of the same name.
  virtual void Started(absl::string_view method, bool stream) = 0;
  virtual void Finished(const CallRecord& record) = 0;
};

}  // namespace posenc::server
