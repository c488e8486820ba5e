// The interface of metrics, the call log and traces, which observe calls.

#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "grpcpp/support/status.h"

namespace posenc::server {

// Describes a call that has ended. The string_views are valid only during
// CallObserver::Finished().
struct CallRecord {
  // For example "posenc.v1.PositionalEncodingService" and "ApplyRope". Both are
  // "" for an unknown RPC, and for a call that was refused before its RPC was
  // looked up.
  absl::string_view service;
  absl::string_view method;
  grpc::StatusCode code = grpc::StatusCode::OK;
  // A name such as "ERROR_REASON_OVERLOADED", or "" without error details.
  absl::string_view reason;
  absl::string_view message;  // of the status

  absl::Time started;        // when its headers arrived
  absl::Duration handling;   // from `started` until gRPC released the call
  absl::Duration waited;     // part of `handling`: waits for a place and memory
  absl::Duration computing;  // part of `handling`: in computations

  std::int64_t messages_received = 0, messages_sent = 0;
  std::int64_t bytes_received = 0, bytes_sent = 0;

  // The peer may choose these texts. Their lengths are bounded, but the texts
  // are not escaped.
  absl::string_view peer;         // "ipv4:10.0.0.7:40123"
  absl::string_view caller;       // the token's name; "" without tokens
  absl::string_view request_id;   // metadata x-request-id; "" if none
  absl::string_view traceparent;  // metadata traceparent (W3C); "" if none
};

// The functions must be thread-safe, and must return within microseconds,
// because loops call them.
class CallObserver {
 public:
  virtual ~CallObserver() = default;
  // Called when a call has arrived. `method` is CallRecord::method. The service
  // is not needed, because method names are unique across services.
  virtual void Started(absl::string_view /*method*/) {}
  virtual void Finished(const CallRecord& record) = 0;
};

}  // namespace posenc::server
